//! The seventeen status codes of gRPC, and what other protocols' codes mean among them.

use std::fmt;

/// How a call ended (`grpc-status`).
///
/// The numbers are those of the gRPC documents (`statuscodes.md`) and never change.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum Code {
    /// The call succeeded.
    Ok = 0,
    /// The call was cancelled, typically by the caller.
    Cancelled = 1,
    /// An error of which no more is known, such as one from a place that uses other codes.
    Unknown = 2,
    /// The arguments are wrong whatever the state of the system.
    InvalidArgument = 3,
    /// The deadline passed before the call completed; it may still have taken effect.
    DeadlineExceeded = 4,
    /// Something that was asked for does not exist.
    NotFound = 5,
    /// Something that was to be created exists already.
    AlreadyExists = 6,
    /// The caller is known and may not do this.
    PermissionDenied = 7,
    /// A quota, a limit or a space is used up.
    ResourceExhausted = 8,
    /// The system is not in the state that the call needs; retrying does not help until that is mended.
    FailedPrecondition = 9,
    /// The call was given up because of a conflict, such as a transaction that lost; retry on a higher level.
    Aborted = 10,
    /// The call went past the end of what there is.
    OutOfRange = 11,
    /// The method does not exist here, or is not supported.
    Unimplemented = 12,
    /// Something that must always hold is broken.
    Internal = 13,
    /// The service cannot be reached for the moment; retrying after a pause is sensible.
    Unavailable = 14,
    /// Data is lost or corrupt for good.
    DataLoss = 15,
    /// The caller is not known: valid credentials are missing.
    Unauthenticated = 16,
}

impl Code {
    /// All codes, in the order of their numbers.
    pub const ALL: [Self; 17] = [
        Self::Ok,
        Self::Cancelled,
        Self::Unknown,
        Self::InvalidArgument,
        Self::DeadlineExceeded,
        Self::NotFound,
        Self::AlreadyExists,
        Self::PermissionDenied,
        Self::ResourceExhausted,
        Self::FailedPrecondition,
        Self::Aborted,
        Self::OutOfRange,
        Self::Unimplemented,
        Self::Internal,
        Self::Unavailable,
        Self::DataLoss,
        Self::Unauthenticated,
    ];

    /// The code with this number; [`Code::Unknown`] for a number that no code has.
    pub const fn from_i32(number: i32) -> Self {
        if 0 <= number && number < Self::ALL.len() as i32 {
            Self::ALL[number as usize]
        } else {
            Self::Unknown
        }
    }

    /// The number on the wire, 0 to 16.
    pub const fn as_i32(self) -> i32 {
        self as i32
    }

    /// The code as it stands in `grpc-status`: decimal, without leading zeros.
    pub const fn as_wire(self) -> &'static str {
        const DECIMALS: [&str; 17] =
            ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11", "12", "13", "14", "15", "16"];
        DECIMALS[self as usize]
    }

    /// Reads the value of `grpc-status`. Everything that is not a known number in decimal without leading zeros is
    /// [`Code::Unknown`], as the gRPC documents ask.
    pub fn from_wire(value: &[u8]) -> Self {
        match value {
            [digit @ b'0'..=b'9'] => Self::from_i32(i32::from(digit - b'0')),
            [b'1', digit @ b'0'..=b'6'] => Self::from_i32(10 + i32::from(digit - b'0')),
            _ => Self::Unknown,
        }
    }

    /// The name in the gRPC documents, such as `DEADLINE_EXCEEDED`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ok => "OK",
            Self::Cancelled => "CANCELLED",
            Self::Unknown => "UNKNOWN",
            Self::InvalidArgument => "INVALID_ARGUMENT",
            Self::DeadlineExceeded => "DEADLINE_EXCEEDED",
            Self::NotFound => "NOT_FOUND",
            Self::AlreadyExists => "ALREADY_EXISTS",
            Self::PermissionDenied => "PERMISSION_DENIED",
            Self::ResourceExhausted => "RESOURCE_EXHAUSTED",
            Self::FailedPrecondition => "FAILED_PRECONDITION",
            Self::Aborted => "ABORTED",
            Self::OutOfRange => "OUT_OF_RANGE",
            Self::Unimplemented => "UNIMPLEMENTED",
            Self::Internal => "INTERNAL",
            Self::Unavailable => "UNAVAILABLE",
            Self::DataLoss => "DATA_LOSS",
            Self::Unauthenticated => "UNAUTHENTICATED",
        }
    }

    /// What an HTTP status means for a response that has no `grpc-status` (`http-grpc-status-mapping.md`).
    ///
    /// Only clients use it. 200 has no place in that map: a response that says 200 and has no `grpc-status` is
    /// [`Code::Unknown`], like every status the map does not name.
    pub const fn from_http_status(status: u16) -> Self {
        match status {
            400 => Self::Internal,
            401 => Self::Unauthenticated,
            403 => Self::PermissionDenied,
            404 => Self::Unimplemented,
            429 | 502 | 503 | 504 => Self::Unavailable,
            _ => Self::Unknown,
        }
    }

    /// What the error code of an RST_STREAM (RFC 9113 §7) means for a call that has no status yet
    /// (`PROTOCOL-HTTP2.md`, "Errors").
    ///
    /// STREAM_CLOSED, which the gRPC documents leave out, and codes that RFC 9113 does not know are
    /// [`Code::Internal`] like most: HTTP/2 between the two ends is broken.
    pub const fn from_http2_error(code: u32) -> Self {
        match code {
            // REFUSED_STREAM
            0x7 => Self::Unavailable,
            // CANCEL
            0x8 => Self::Cancelled,
            // ENHANCE_YOUR_CALM
            0xb => Self::ResourceExhausted,
            // INADEQUATE_SECURITY
            0xc => Self::PermissionDenied,
            // NO_ERROR, PROTOCOL_ERROR, INTERNAL_ERROR, FLOW_CONTROL_ERROR, SETTINGS_TIMEOUT, STREAM_CLOSED,
            // FRAME_SIZE_ERROR, COMPRESSION_ERROR, CONNECT_ERROR, HTTP_1_1_REQUIRED, and unknown ones.
            _ => Self::Internal,
        }
    }
}

impl From<i32> for Code {
    fn from(number: i32) -> Self {
        Self::from_i32(number)
    }
}

impl From<Code> for i32 {
    fn from(code: Code) -> Self {
        code.as_i32()
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_names_and_wire_forms_agree() {
        for (number, code) in Code::ALL.into_iter().enumerate() {
            assert_eq!(code.as_i32(), number as i32);
            assert_eq!(Code::from(number as i32), code);
            assert_eq!(i32::from(code), number as i32);
            assert_eq!(code.as_wire(), number.to_string());
            assert_eq!(Code::from_wire(code.as_wire().as_bytes()), code);
            let camel_case: String = code.name().split('_').flat_map(capitalized).collect();
            assert_eq!(camel_case, format!("{code:?}"));
            assert_eq!(code.to_string(), code.name());
        }
    }

    fn capitalized(word: &str) -> Vec<char> {
        word.chars().take(1).chain(word.chars().skip(1).map(|letter| letter.to_ascii_lowercase())).collect()
    }

    #[test]
    fn numbers_out_of_range_are_unknown() {
        for number in [-1, 17, 18, 255, 256, i32::MIN, i32::MAX] {
            assert_eq!(Code::from_i32(number), Code::Unknown);
        }
    }

    /// Wire rule 30.
    #[test]
    fn garbage_in_grpc_status_is_unknown() {
        let garbage: [&[u8]; 12] = [
            b"",
            b"00",
            b"01",
            b"007",
            b"+1",
            b"-1",
            b" 5",
            b"5 ",
            b"17",
            b"99999999999999999999",
            b"OK",
            b"\xff",
        ];
        for value in garbage {
            assert_eq!(Code::from_wire(value), Code::Unknown, "{value:?}");
        }
    }

    /// Wire rule 28.
    #[test]
    fn http_statuses_map_as_documented() {
        let named = [
            (400, Code::Internal),
            (401, Code::Unauthenticated),
            (403, Code::PermissionDenied),
            (404, Code::Unimplemented),
            (429, Code::Unavailable),
            (502, Code::Unavailable),
            (503, Code::Unavailable),
            (504, Code::Unavailable),
        ];
        for status in 0..=999 {
            let expected =
                named.iter().find(|(known, _)| *known == status).map_or(Code::Unknown, |(_, code)| *code);
            assert_eq!(Code::from_http_status(status), expected, "{status}");
        }
        assert_eq!(Code::from_http_status(u16::MAX), Code::Unknown);
    }

    /// Wire rule 33.
    #[test]
    fn http2_error_codes_map_as_documented() {
        let expected = [
            Code::Internal,
            Code::Internal,
            Code::Internal,
            Code::Internal,
            Code::Internal,
            Code::Internal,
            Code::Internal,
            Code::Unavailable,
            Code::Cancelled,
            Code::Internal,
            Code::Internal,
            Code::ResourceExhausted,
            Code::PermissionDenied,
            Code::Internal,
            Code::Internal,
        ];
        for (number, code) in expected.into_iter().enumerate() {
            assert_eq!(Code::from_http2_error(number as u32), code, "{number}");
        }
        assert_eq!(Code::from_http2_error(u32::MAX), Code::Internal);
    }
}
