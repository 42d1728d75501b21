use fulmar_base::{Env, Instant, Output, Pool};
use fulmar_hpack::Field;

use super::*;
use crate::OpenError;
use crate::frame::STREAM_ID_MAX;

#[test]
fn r39_a_client_that_has_used_all_stream_ids_says_so() {
    let mut client = Connection::new(Role::Client, Config { stream_id_max: u32::MAX, ..Config::default() });
    client.next_id = STREAM_ID_MAX - 2;
    let (mut pool, mut out) = (Pool::new(), Output::new());
    let mut env = Env { now: Instant::ZERO, pool: &mut pool, out: &mut out };
    let request = [Field::new(b":method", b"GET")];
    for id in [STREAM_ID_MAX - 2, STREAM_ID_MAX] {
        let stream = client.open(&mut env, request, true).unwrap();
        assert_eq!(client.stream_id(stream), Some(id));
    }
    assert_eq!(client.open(&mut env, request, true), Err(OpenError::Exhausted));
}

#[test]
fn r39_a_client_leaves_the_last_quarter_of_the_stream_ids_alone() {
    let mut client = Connection::new(Role::Client, Config::default());
    client.next_id = 0x5fff_ffff;
    let (mut pool, mut out) = (Pool::new(), Output::new());
    let mut env = Env { now: Instant::ZERO, pool: &mut pool, out: &mut out };
    let request = [Field::new(b":method", b"GET")];
    assert!(client.open(&mut env, request, true).is_ok());
    assert_eq!(client.open(&mut env, request, true), Err(OpenError::Exhausted));
    assert!(!client.is_going_away(), "the streams that are open go on");
}

#[test]
fn a_connection_without_streams_stays_small() {
    assert!(size_of::<Connection>() <= 2_240, "{}", size_of::<Connection>());
}
