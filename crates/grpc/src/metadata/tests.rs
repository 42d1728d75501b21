use super::*;
use crate::base64::Base64Error;
use crate::testing::Random;

fn map(values: &[(&str, &str)]) -> MetadataMap {
    let mut map = MetadataMap::new();
    for (name, value) in values {
        map.append(name, value).expect("legal metadata");
    }
    map
}

fn fields(map: &MetadataMap) -> Vec<(String, Vec<u8>, bool)> {
    map.raw_iter()
        .map(|(name, value, sensitive)| {
            (String::from_utf8_lossy(name).into_owned(), value.to_vec(), sensitive)
        })
        .collect()
}

fn received(values: &[(&str, &[u8])]) -> MetadataMap {
    let mut map = MetadataMap::new();
    for (name, value) in values {
        map.append_received(name.as_bytes(), value, false).expect("what HTTP allows is kept");
    }
    map
}

#[test]
fn several_values_of_a_name_keep_their_order() {
    let map = map(&[("a", "1"), ("b", "2"), ("a", "3")]);
    assert_eq!(map.len(), 3);
    assert_eq!(map.get("a"), Some("1"));
    assert_eq!(map.get_all("a").collect::<Vec<_>>(), ["1", "3"]);
    assert_eq!(map.get("c"), None);
    assert_eq!(map.get_all("c").count(), 0);
    assert!(map.contains_key("b") && !map.contains_key("c"));
    assert_eq!(map.keys().collect::<Vec<_>>(), ["a", "b"]);
    let all: Vec<_> = map.iter().map(|(name, value)| (name, value.to_str())).collect();
    assert_eq!(all, [("a", Some("1")), ("b", Some("2")), ("a", Some("3"))]);
    assert_eq!(map.iter().len(), 3);
    assert_eq!(map.list_bytes(), 6 + 3 * 32);
}

#[test]
fn insert_replaces_and_append_adds() {
    let mut map = map(&[("a", "1"), ("b", "2"), ("a", "3")]);
    map.insert("A", "4").expect("legal");
    assert_eq!(fields(&map), [("b".into(), b"2".to_vec(), false), ("a".into(), b"4".to_vec(), false)]);
    map.append("a", "5").expect("legal");
    assert_eq!(map.get_all("a").collect::<Vec<_>>(), ["4", "5"]);
    assert_eq!(map.remove("a"), 2);
    assert_eq!(map.remove("a"), 0);
    assert_eq!(fields(&map), [("b".into(), b"2".to_vec(), false)]);
}

/// Wire rule 10.
#[test]
fn names_become_lower_case_and_are_found_in_any_case() {
    let map = map(&[("X-Request_Id.0", "17")]);
    assert_eq!(map.iter().next().map(|(name, _)| name), Some("x-request_id.0"));
    assert_eq!(map.get("x-request_id.0"), Some("17"));
    assert_eq!(map.get("X-REQUEST_ID.0"), Some("17"));
}

/// Wire rule 10.
#[test]
fn names_that_are_none_are_refused() {
    let mut map = MetadataMap::new();
    let long = "n".repeat(1025);
    for name in
        ["", " ", "a b", "a:b", "a/b", "é", "a\n", "a\0", "a,b", "a=b", "(a)", "a+b", "a~b", long.as_str()]
    {
        let error = map.append(name, "v").expect_err(name);
        assert!(matches!(error, MetadataError::Name(_)), "{error:?}");
        assert!(error.to_string().len() < 1_200, "an error does not repeat everything it is given");
        assert!(matches!(map.append_bin(&format!("{name}/-bin"), b""), Err(MetadataError::Name(_))));
    }
    assert!(map.is_empty());
    map.append(&"n".repeat(1024), "v").expect("the longest name");
}

/// Wire rules 10 and 12.
#[test]
fn reserved_names_are_refused_with_the_reason() {
    let mut map = MetadataMap::new();
    let reserved = [
        "grpc-timeout",
        "grpc-status",
        "GRPC-Message",
        "grpc-encoding",
        "grpc-accept-encoding",
        "grpc-",
        "grpc-x",
        "grpc-tags-bin",
        ":path",
        ":status",
        ":",
        "te",
        "TE",
        "content-type",
        "Content-Type",
        "content-length",
        "content-encoding",
        "connection",
        "keep-alive",
        "proxy-connection",
        "transfer-encoding",
        "upgrade",
        "http2-settings",
        "host",
        "user-agent",
        "trailer",
    ];
    for name in reserved {
        assert!(is_reserved(name.as_bytes()), "{name}");
        let error = map.insert(name, "v").expect_err(name);
        let MetadataError::Reserved { name: told, reason } = &error else {
            panic!("{name}: {error:?}");
        };
        assert_eq!(told, name);
        assert!(error.to_string().contains(reason) && !reason.is_empty());
        assert!(map.insert_bin(name, b"v").is_err());
    }
    assert!(map.is_empty());
    for name in
        ["grpc-previous-rpc-attempts", "grpc-retry-pushback-ms", "grpc", "grpcx", "tea", "hosts", "accept"]
    {
        assert!(!is_reserved(name.as_bytes()), "{name}");
        map.insert(name, "1").expect(name);
    }
}

/// Wire rule 10.
#[test]
fn text_values_are_printable_ascii() {
    let mut map = MetadataMap::new();
    let printable: String = (0x20..=0x7e_u8).map(char::from).collect();
    map.insert("printable", &format!("<{printable}>")).expect("all of printable ASCII");
    assert_eq!(map.get("printable"), Some(format!("<{printable}>").as_str()));
    map.insert("empty", "").expect("an empty value is a value");
    assert_eq!(map.get("empty"), Some(""));
    for (text, at, byte) in
        [("a\tb", 1, b'\t'), ("\r\nx: y", 0, b'\r'), ("nul\0", 3, 0), ("del\x7f", 3, 0x7f), ("é", 0, 0xc3)]
    {
        let expected = MetadataError::Value { name: "text".into(), byte, at };
        assert_eq!(map.insert("text", text), Err(expected.clone()));
        assert_eq!(map.append_sensitive("text", text), Err(expected));
    }
    assert!(!map.contains_key("text"));
}

#[test]
fn spaces_at_the_ends_of_a_text_value_go_away() {
    let map = map(&[("a", "  one two "), ("b", "   ")]);
    assert_eq!(map.get("a"), Some("one two"));
    assert_eq!(map.get("b"), Some(""));
}

#[test]
fn a_refused_value_leaves_the_old_one() {
    let mut map = map(&[("a", "1"), ("b", "2")]);
    let before = map.clone();
    assert!(map.insert("a", "\n").is_err());
    assert!(map.insert("a-bin", "text").is_err());
    assert!(map.insert_bin("a", b"bytes").is_err());
    assert_eq!(map, before);
}

/// Wire rule 11.
#[test]
fn binary_values_are_base64_without_padding_on_the_wire() {
    let mut map = MetadataMap::new();
    map.append_bin("Trace-BIN", b"f").expect("legal");
    map.append_bin("trace-bin", b"").expect("legal");
    map.append_bin("trace-bin", &[0xff, 0xfe, 0xfd, 0xfc]).expect("legal");
    let wire: Vec<_> = map.raw_iter().map(|(name, value, _)| (name, value)).collect();
    assert_eq!(wire, [(&b"trace-bin"[..], &b"Zg"[..]), (b"trace-bin", b""), (b"trace-bin", b"//79/A")]);
    assert_eq!(map.get_bin("trace-bin"), Some(b"f".to_vec()));
    assert_eq!(map.get_all_bin("TRACE-bin").collect::<Vec<_>>(), [&b"f"[..], b"", &[0xff, 0xfe, 0xfd, 0xfc]]);
    assert_eq!(map.get("trace-bin"), None, "bytes are no text");
    assert_eq!(map.get_all("trace-bin").count(), 0);

    map.insert_bin("trace-bin", b"foobar").expect("legal");
    assert_eq!(map.get_all_bin("trace-bin").collect::<Vec<_>>(), [b"foobar"]);
}

#[test]
fn kinds_of_names_and_values_must_agree() {
    let mut map = MetadataMap::new();
    assert_eq!(map.insert("a-bin", "text"), Err(MetadataError::BinaryName("a-bin".into())));
    assert_eq!(map.append("A-Bin", "text"), Err(MetadataError::BinaryName("A-Bin".into())));
    assert_eq!(map.insert_bin("a", b"bytes"), Err(MetadataError::NotBinaryName("a".into())));
    assert_eq!(map.append_bin("bin", b"bytes"), Err(MetadataError::NotBinaryName("bin".into())));
    map.append_bin("-bin", b"bytes").expect("the shortest binary name");

    let text = map_value("text");
    let text = text.get_value("v").expect("a value");
    assert!(matches!(map.append_value("v-bin", text), Err(MetadataError::BinaryName(_))));
    let bytes = map.clone();
    let bytes = bytes.get_value("-bin").expect("a value");
    assert!(matches!(map.append_value("v", bytes), Err(MetadataError::NotBinaryName(_))));
    assert!(matches!(map.append_value("grpc-status", text), Err(MetadataError::Reserved { .. })));
    assert_eq!(map.len(), 1);
}

fn map_value(value: &str) -> MetadataMap {
    map(&[("v", value)])
}

/// Wire rule 11.
#[test]
fn received_binary_values_are_split_at_commas_and_accepted_with_or_without_padding() {
    let map = received(&[
        ("a-bin", b"Zg==, Zm8 ,Zm9v"),
        ("a-bin", b"Zm9vYg"),
        ("b-bin", b""),
        ("c-bin", b"Zg==,,"),
    ]);
    assert_eq!(map.get_all_bin("a-bin").collect::<Vec<_>>(), [&b"f"[..], b"fo", b"foo", b"foob"]);
    assert_eq!(map.get_bin("b-bin"), Some(Vec::new()));
    assert_eq!(map.get_all_bin("c-bin").collect::<Vec<_>>(), [&b"f"[..], b"", b""]);
    assert!(map.raw_iter().all(|(_, value, _)| !value.contains(&b'=')), "it goes out without padding");
}

#[test]
fn received_text_values_are_not_split() {
    let map = received(&[("a", b"1, 2,3")]);
    assert_eq!(map.get_all("a").collect::<Vec<_>>(), ["1, 2,3"]);
}

/// Wire rule 12.
#[test]
fn a_received_binary_value_that_is_not_base64_is_told_and_leaves_no_part() {
    let mut map = received(&[("a-bin", b"Zg")]);
    let before = map.clone();
    let bad = Base64Error::Character { byte: b'-', at: 1 };
    assert_eq!(map.append_received(b"a-bin", b"Zm8,Z-", false), Err(MetadataError::Base64(bad)));
    assert_eq!(
        map.append_received(b"a-bin", b"Z", false),
        Err(MetadataError::Base64(Base64Error::Length(1)))
    );
    assert_eq!(map, before);
}

#[test]
fn commas_in_binary_values_do_not_blow_up_the_map() {
    let name = [&[b'n'; 4_000][..], b"-bin"].concat();
    let mut map = MetadataMap::new();
    assert_eq!(map.append_received(&name, &[b','; 12_000], false), Err(MetadataError::Full));
    assert_eq!((map.len(), map.memory_bytes()), (0, 0));
    // Parts as they are used pass, and so do many of them, but not again and again.
    let parts = ["AAAA"; 200].join(",");
    let taken = (0..100).take_while(|_| map.append_received(b"parts-bin", parts.as_bytes(), false).is_ok());
    assert_eq!(taken.count(), 3);
    assert_eq!(map.len(), 600);
    assert!(map.memory_bytes() < 50_000, "{}", map.memory_bytes());
    map.clear();
    assert_eq!(map.append_received(b"parts-bin", parts.as_bytes(), false), Ok(()));
}

/// Wire rule 10: no error, and echoing works.
#[test]
fn received_values_that_grpc_does_not_allow_are_kept_and_can_be_echoed() {
    let latin: &[u8] = b"caf\xe9";
    let odd = received(&[
        ("utf8", "caf\u{e9}\u{1f600}".as_bytes()),
        ("latin", latin),
        ("tab", b"a\tb"),
        ("odd!#$name", b"x"),
        ("user-agent", b"grpc-go/1"),
    ]);
    assert_eq!(odd.get("utf8"), Some("caf\u{e9}\u{1f600}"));
    assert_eq!(odd.get("latin"), None);
    assert_eq!(odd.get_value("latin").map(Value::as_wire), Some(latin));
    assert_eq!(odd.get_value("latin").and_then(Value::to_str), None);
    assert_eq!(odd.get_value("latin").and_then(Value::to_bytes), None);
    assert_eq!(odd.get("tab"), Some("a\tb"));
    assert_eq!(odd.get("odd!#$name"), Some("x"));

    let mut echo = MetadataMap::new();
    for name in ["utf8", "latin", "tab"] {
        echo.append_value(name, odd.get_value(name).expect("it is there")).expect("echoing works");
    }
    assert_eq!(fields(&echo), fields(&odd)[..3]);

    let mut copy = MetadataMap::new();
    copy.extend_from(&odd);
    assert_eq!(copy, odd);
}

#[test]
fn received_values_lose_white_space_at_their_ends() {
    let map = received(&[("a", b" \t x y\t ")]);
    assert_eq!(map.get("a"), Some("x y"));
}

#[test]
fn sensitive_values_stay_so_and_are_not_shown() {
    let mut map = MetadataMap::new();
    map.insert("shown", "visible \"text\"").expect("legal");
    map.insert_bin("shown-bin", b"by\xfftes").expect("legal");
    map.insert_sensitive("token", "swordfish").expect("legal");
    map.append_sensitive("token", "tuna").expect("legal");
    map.insert_bin_sensitive("key-bin", b"foobar").expect("legal");
    map.append_bin_sensitive("key-bin", b"foobar").expect("legal");
    map.append_received(b"cookie", b"crumb", true).expect("legal");
    let sensitive: Vec<_> = map.raw_iter().map(|(_, _, sensitive)| sensitive).collect();
    assert_eq!(sensitive, [false, false, true, true, true, true, true]);

    let text = format!("{map:?}");
    for secret in ["swordfish", "tuna", "foobar", "Zm9vYmFy", "crumb"] {
        assert!(!text.contains(secret), "{text}");
    }
    assert!(text.contains(r#""shown": "visible \"text\"""#), "{text}");
    assert!(text.contains(r#""shown-bin": b"by\xfftes""#), "{text}");
    assert!(text.contains(r#""token": (sensitive)"#), "{text}");

    let mut copy = MetadataMap::new();
    copy.append_value("token", map.get_value("token").expect("it is there")).expect("legal");
    copy.extend_from(&map);
    assert!(copy.iter().next().is_some_and(|(_, value)| value.is_sensitive()));
    assert_eq!(fields(&copy)[1..], fields(&map));
    map.insert("token", "public").expect("legal");
    assert!(map.get_value("token").is_some_and(|value| !value.is_sensitive()));
}

#[test]
fn equality_tells_apart_where_names_end() {
    assert_eq!(map(&[("a", "b")]), map(&[("A", "b")]));
    assert_ne!(map(&[("ab", "c")]), map(&[("a", "bc")]));
    assert_ne!(map(&[("a", "1"), ("b", "2")]), map(&[("b", "2"), ("a", "1")]));
    assert_ne!(map(&[("a", "1")]), MetadataMap::new());
    assert_eq!(*MetadataMap::EMPTY, MetadataMap::new());
}

#[test]
fn a_full_map_refuses_more_and_stays_as_it_was() {
    let mut map = MetadataMap::new();
    let value = "v".repeat(MetadataMap::BYTES_MAX - 3);
    map.insert("a", &value).expect("it fits");
    assert_eq!(map.append("b", "22"), Err(MetadataError::Full));
    assert_eq!(map.append_bin("b-bin", b"12"), Err(MetadataError::Full));
    assert_eq!(map.append_received(b"b-bin", b",Zg,Zg", false), Err(MetadataError::Full));
    let mut other = map_value("text");
    other.append("b", "2").expect("legal");
    map.extend_from(&other);
    assert_eq!(map.len(), 2, "what does not fit is left out");
    assert_eq!(map.get("v"), None);
    assert_eq!(map.get("b"), Some("2"));
}

#[test]
fn a_map_that_is_used_again_allocates_nothing() {
    let mut map = MetadataMap::new();
    let mut source = MetadataMap::new();
    let fill = |map: &mut MetadataMap| {
        for _ in 0..5 {
            map.append("request-id", "0123456789").expect("legal");
            map.insert_bin("trace-bin", &[7; 40]).expect("legal");
            map.append_received(b"x-bin", b"Zg,Zm8", false).expect("legal");
        }
    };
    fill(&mut map);
    fill(&mut source);
    let memory = |map: &MetadataMap| {
        (
            map.fields().bytes.as_ptr(),
            map.fields().bytes.capacity(),
            map.fields().entries.as_ptr(),
            map.fields().entries.capacity(),
        )
    };
    let before = memory(&map);
    for _ in 0..10 {
        map.clear();
        assert!(map.is_empty());
        fill(&mut map);
        assert_eq!(map, source);
        map.clone_from(&source);
        map.clear();
        map.extend_from(&source);
    }
    assert_eq!(memory(&map), before);
}

#[test]
fn replacing_a_value_again_and_again_needs_no_more_memory() {
    let mut map = map(&[("keep", "me")]);
    for round in 0..10_000 {
        map.insert("counter", &format!("{:05}", round)).expect("legal");
    }
    assert_eq!(map.list_bytes(), "keepme".len() + "counter00000".len() + 2 * 32);
    assert!(map.fields().bytes.capacity() < 256, "{}", map.fields().bytes.capacity());
}

/// Random operations against the plainest model of a map that keeps order.
#[test]
fn random_operations_agree_with_a_list() {
    let mut random = Random::new(10);
    for _ in 0..50 {
        let mut map = MetadataMap::new();
        let mut model: Vec<(String, Vec<u8>, bool)> = Vec::new();
        for _ in 0..300 {
            step(&mut random, &mut map, &mut model);
            let bytes: usize = model.iter().map(|(name, value, _)| name.len() + value.len()).sum();
            assert_eq!(map.fields().bytes.len(), bytes, "no gaps");
            assert_eq!(map.len(), model.len());
        }
        assert_eq!(fields(&map), model);
    }
}

fn step(random: &mut Random, map: &mut MetadataMap, model: &mut Vec<(String, Vec<u8>, bool)>) {
    let binary = random.below(2) == 0;
    let name = format!(
        "{}{}",
        ["a", "b", "long-name", "ab"][random.below(4) as usize],
        if binary { "-bin" } else { "" }
    );
    let length = random.below(9) as usize;
    let sensitive = random.below(4) == 0;
    let value: Vec<u8> = if binary {
        random.bytes(length)
    } else {
        (0..length).map(|_| b'!' + random.below(90) as u8).collect()
    };
    let text = String::from_utf8_lossy(&value).into_owned();
    let operation = random.below(10);
    if operation < 5 {
        model.retain(|(known, _, _)| operation >= 3 || *known != name);
        match (operation < 3, binary, sensitive) {
            (true, false, false) => map.insert(&name, &text),
            (true, false, true) => map.insert_sensitive(&name, &text),
            (true, true, false) => map.insert_bin(&name, &value),
            (true, true, true) => map.insert_bin_sensitive(&name, &value),
            (false, false, false) => map.append(&name, &text),
            (false, false, true) => map.append_sensitive(&name, &text),
            (false, true, false) => map.append_bin(&name, &value),
            (false, true, true) => map.append_bin_sensitive(&name, &value),
        }
        .expect("legal");
        // The model holds what the wire would: bytes as base64.
        let mut wire = value;
        if binary {
            let bytes = std::mem::take(&mut wire);
            base64::encode(&bytes, &mut wire);
        }
        model.push((name, wire, sensitive));
    } else if operation == 5 {
        let count = model.iter().filter(|(known, _, _)| *known == name).count();
        model.retain(|(known, _, _)| *known != name);
        assert_eq!(map.remove(&name), count);
    } else {
        let all: Vec<_> =
            model.iter().filter(|(known, _, _)| *known == name).map(|(_, value, _)| &value[..]).collect();
        assert_eq!(map.get_all_values(&name).map(Value::as_wire).collect::<Vec<_>>(), all);
        assert_eq!(map.get_value(&name).map(Value::as_wire), all.first().copied());
    }
}
