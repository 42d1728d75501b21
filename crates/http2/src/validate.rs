//! Which header sections are well-formed (RFC 9113 §8). What is not is a stream error of type PROTOCOL_ERROR (RFC 9113 §8.1.1).

use fulmar_hpack::Field;

/// What is wrong with a header section.
pub(crate) type Malformed = &'static str;

/// What the engine has to know of a request.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Request {
    pub(crate) content_length: Option<u64>,
}

/// What the engine has to know of a response.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Response {
    pub(crate) status: Status,
    pub(crate) content_length: Option<u64>,
}

/// The classes of status codes that differ for the engine.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Status {
    /// 1xx: a further header section follows.
    Interim,
    /// 204 and 304: there is no content, whatever content-length says (RFC 9110 §6.4.1).
    WithoutContent,
    Final,
}

/// The rules, with what of them the configuration may relax.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Validator {
    pub(crate) surrounding_whitespace_allowed: bool,
}

impl Validator {
    /// The header section that begins a request (RFC 9113 §8.3.1).
    pub(crate) fn request<'f>(self, fields: impl Iterator<Item = Field<'f>>) -> Result<Request, Malformed> {
        let mut method = None;
        let mut scheme = None;
        let mut path = None;
        let mut authority = None;
        let content_length = self.section(fields, |name, value| {
            let slot = match name {
                b":method" => &mut method,
                b":scheme" => &mut scheme,
                b":path" => &mut path,
                b":authority" => &mut authority,
                _ => return Err("pseudo-header field that requests do not have"),
            };
            slot.replace(value).map_or(Ok(()), |_| Err("pseudo-header field twice"))
        })?;
        match (method, scheme, path, authority) {
            (Some(b"CONNECT"), None, None, Some(_)) => {}
            (Some(b"CONNECT"), ..) => return Err("CONNECT takes :method and :authority, and no other"),
            (Some(method), Some(_), Some(path), _) => {
                if !(path.starts_with(b"/") || method == b"OPTIONS" && path == b"*") {
                    return Err(":path does not start with a slash");
                }
            }
            _ => return Err("request without :method, :scheme or :path"),
        }
        Ok(Request { content_length })
    }

    /// The header section that begins a response, or an interim one (RFC 9113 §8.3.2). A status outside of 100 to 599 is legal
    /// here: RFC 9110 §15 leaves it to the client to make a server error of it.
    pub(crate) fn response<'f>(self, fields: impl Iterator<Item = Field<'f>>) -> Result<Response, Malformed> {
        let mut status = None;
        let content_length = self.section(fields, |name, value| match name {
            b":status" if status.is_none() => {
                status = Some(value);
                Ok(())
            }
            b":status" => Err("pseudo-header field twice"),
            _ => Err("pseudo-header field that responses do not have"),
        })?;
        let status = match status.ok_or("response without :status")? {
            b"101" => return Err("status 101, which HTTP/2 does not have"),
            b"204" | b"304" => Status::WithoutContent,
            [b'1', d1, d2] if d1.is_ascii_digit() && d2.is_ascii_digit() => Status::Interim,
            _ => Status::Final,
        };
        Ok(Response { status, content_length })
    }

    /// A trailer section (RFC 9113 §8.1): no pseudo-header fields.
    pub(crate) fn trailers<'f>(self, fields: impl Iterator<Item = Field<'f>>) -> Result<(), Malformed> {
        self.section(fields, |_, _| Err("pseudo-header field in trailers")).map(|_| ())
    }

    /// Checks what holds in every section, hands the pseudo-header fields to `pseudo`, and returns the content-length.
    fn section<'f>(
        self,
        fields: impl Iterator<Item = Field<'f>>,
        mut pseudo: impl FnMut(&'f [u8], &'f [u8]) -> Result<(), Malformed>,
    ) -> Result<Option<u64>, Malformed> {
        let mut content_length = None;
        let (mut regular_seen, mut host_seen) = (false, false);
        for Field { name, value, .. } in fields {
            self.check_value(value)?;
            if name.first() == Some(&b':') {
                if regular_seen {
                    return Err("pseudo-header field behind a regular field");
                }
                pseudo(name, value)?;
                continue;
            }
            regular_seen = true;
            check_name(name)?;
            match name {
                b"connection" | b"proxy-connection" | b"keep-alive" | b"transfer-encoding" | b"upgrade" => {
                    return Err("connection-specific field");
                }
                b"te" if !value.eq_ignore_ascii_case(b"trailers") => {
                    return Err("te with another value than trailers");
                }
                // It stands for :authority, of which there is one at most (RFC 9110 §7.2).
                b"host" if std::mem::replace(&mut host_seen, true) => return Err("host twice"),
                b"content-length" => {
                    let length = parse_length(value).ok_or("content-length that is no number")?;
                    if content_length.replace(length).is_some_and(|earlier| earlier != length) {
                        return Err("two different values of content-length");
                    }
                }
                _ => {}
            }
        }
        Ok(content_length)
    }

    /// RFC 9113 §8.2.1. The fold has no early exit so that it is vectorised.
    fn check_value(self, value: &[u8]) -> Result<(), Malformed> {
        let bad = value.iter().fold(false, |bad, &byte| bad | matches!(byte, b'\0' | b'\n' | b'\r'));
        if bad {
            return Err("field value with NUL, CR or LF");
        }
        let surrounded =
            [value.first(), value.last()].iter().flatten().any(|&byte| matches!(byte, b' ' | b'\t'));
        if surrounded && !self.surrounding_whitespace_allowed {
            return Err("field value that starts or ends with whitespace");
        }
        Ok(())
    }
}

/// RFC 9113 §8.2.1: no control characters, no space, no upper case, nothing beyond ASCII, no colon.
fn check_name(name: &[u8]) -> Result<(), Malformed> {
    let bad = name
        .iter()
        .fold(false, |bad, &byte| bad | matches!(byte, 0x00..=0x20 | b':' | b'A'..=b'Z' | 0x7f..=0xff));
    if bad || name.is_empty() { Err("field name with a character that is not allowed") } else { Ok(()) }
}

/// RFC 9110 §8.6: digits and nothing else.
fn parse_length(value: &[u8]) -> Option<u64> {
    if value.is_empty() {
        return None;
    }
    value.iter().try_fold(0u64, |length, &byte| {
        let digit = byte.is_ascii_digit().then(|| byte - b'0')?;
        length.checked_mul(10)?.checked_add(u64::from(digit))
    })
}

#[cfg(test)]
mod tests;
