#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fulmar_sim::fuzz::grpc_message(data));
