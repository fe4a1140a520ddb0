//! CMAF headers and chunks, written and read (ISO/IEC 23000-19).
