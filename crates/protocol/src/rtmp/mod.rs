//! RTMP 1.0 and Enhanced RTMP v2, server and client.
