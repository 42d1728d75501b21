#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fulmar_sim::fuzz::http2_server_bytes(data));
