use super::*;

const STRICT: Validator = Validator { surrounding_whitespace_allowed: false };

type Pairs<'a> = &'a [(&'a str, &'a str)];

fn fields<'a>(pairs: Pairs<'a>) -> impl Iterator<Item = Field<'a>> {
    pairs.iter().map(|(name, value)| Field::new(name.as_bytes(), value.as_bytes()))
}

/// A good request with one more field.
fn request_with(name: &str, value: &str) -> Result<Request, Malformed> {
    let good = [(":method", "POST"), (":scheme", "http"), (":path", "/"), (":authority", "a"), (name, value)];
    STRICT.request(fields(&good))
}

#[test]
fn a_request_needs_method_scheme_and_path_once_each() {
    let all = [(":method", "GET"), (":scheme", "http"), (":path", "/")];
    assert_eq!(STRICT.request(fields(&all)), Ok(Request { content_length: None }));
    for left_out in 0..3 {
        let mut some = all.to_vec();
        some.remove(left_out);
        assert!(STRICT.request(fields(&some)).is_err(), "{some:?}");
        let mut twice = all.to_vec();
        twice.push(all[left_out]);
        assert!(STRICT.request(fields(&twice)).is_err(), "{twice:?}");
    }
}

#[test]
fn there_is_one_authority_and_one_host_at_most() {
    assert!(request_with("host", "b").is_ok(), "next to :authority too");
    assert!(request_with(":authority", "a").is_err());
    let hosts = [(":method", "POST"), (":scheme", "http"), (":path", "/"), ("host", "a"), ("host", "a")];
    assert!(STRICT.request(fields(&hosts[..4])).is_ok());
    assert!(STRICT.request(fields(&hosts)).is_err());
}

#[test]
fn a_path_is_absolute_or_the_asterisk_of_options() {
    let request = |method, path| {
        STRICT.request(fields(&[(":method", method), (":scheme", "http"), (":path", path)])).is_ok()
    };
    assert!(request("GET", "/a?b"));
    assert!(request("OPTIONS", "*"));
    assert!(!request("GET", ""));
    assert!(!request("GET", "*"));
    assert!(!request("GET", "a"));
}

#[test]
fn connect_takes_an_authority_and_neither_scheme_nor_path() {
    let connect = |more: Pairs<'_>| {
        let list = [&[(":method", "CONNECT")], more].concat();
        STRICT.request(fields(&list)).is_ok()
    };
    assert!(connect(&[(":authority", "a:1")]));
    assert!(!connect(&[]));
    assert!(!connect(&[(":authority", "a:1"), (":scheme", "http"), (":path", "/")]));
}

#[test]
fn pseudo_header_fields_come_first_and_are_known() {
    assert!(request_with(":protocol", "websocket").is_err());
    assert!(request_with(":status", "200").is_err());
    assert!(request_with(":", "").is_err());
    let late = [("a", "b"), (":method", "GET"), (":scheme", "http"), (":path", "/")];
    assert!(STRICT.request(fields(&late)).is_err());
}

#[test]
fn connection_specific_fields_are_refused_and_te_says_trailers_only() {
    for name in ["connection", "proxy-connection", "keep-alive", "transfer-encoding", "upgrade"] {
        assert!(request_with(name, "x").is_err(), "{name}");
    }
    assert!(request_with("te", "trailers").is_ok());
    assert!(request_with("te", "trailers, deflate").is_err());
}

#[test]
fn names_are_lower_case_ascii_without_space_or_control() {
    for name in ["Upper", "with space", "tab\t", "null\0", "colon:inside", "\u{e9}", "del\x7f", ""] {
        assert!(request_with(name, "x").is_err(), "{name:?}");
    }
    assert!(request_with("x-_.~!#$%&'*+^`|09", "x").is_ok());
}

#[test]
fn values_hold_no_line_ends_and_no_whitespace_around() {
    for value in ["a\0b", "a\rb", "a\nb", " a", "a ", "\ta", "a\t", " "] {
        assert!(request_with("x", value).is_err(), "{value:?}");
    }
    for value in ["", "a b", "a\tb", "\u{e9}\x7f\x01"] {
        assert!(request_with("x", value).is_ok(), "{value:?}");
    }
    let lenient = Validator { surrounding_whitespace_allowed: true };
    assert!(lenient.trailers(fields(&[("x", " a ")])).is_ok());
}

#[test]
fn content_length_is_one_number() {
    assert_eq!(request_with("content-length", "007"), Ok(Request { content_length: Some(7) }));
    for value in ["", "-1", "+1", "1,1", "0x1", "18446744073709551616"] {
        assert!(request_with("content-length", value).is_err(), "{value:?}");
    }
    let lengths =
        |other| STRICT.trailers(fields(&[("content-length", "1"), ("content-length", other)])).is_ok();
    assert!(lengths("1"));
    assert!(!lengths("2"));
}

#[test]
fn a_response_has_one_status_and_nothing_else_of_the_kind() {
    let status = |value| STRICT.response(fields(&[(":status", value)])).map(|response| response.status);
    assert_eq!(status("200"), Ok(Status::Final));
    assert_eq!(status("100"), Ok(Status::Interim));
    assert_eq!(status("103"), Ok(Status::Interim));
    assert_eq!(status("204"), Ok(Status::WithoutContent));
    assert_eq!(status("304"), Ok(Status::WithoutContent));
    assert_eq!(status("600"), Ok(Status::Final));
    assert_eq!(status("abc"), Ok(Status::Final));
    assert!(status("101").is_err());
    assert!(STRICT.response(fields(&[])).is_err());
    assert!(STRICT.response(fields(&[(":status", "200"), (":status", "200")])).is_err());
    assert!(STRICT.response(fields(&[(":status", "200"), (":path", "/")])).is_err());
}

#[test]
fn trailers_have_no_pseudo_header_fields() {
    assert!(STRICT.trailers(fields(&[("grpc-status", "0")])).is_ok());
    assert!(STRICT.trailers(fields(&[(":status", "200")])).is_err());
}
