//! DASH manifests, ISO/IEC 23009-1.
