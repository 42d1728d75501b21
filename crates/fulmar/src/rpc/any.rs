//! The two messages of `google.protobuf` that `google.rpc` uses. They are written out here, so that a program that calls no
//! well-known type does not build all of them.

use std::time;

use prost::{DecodeError, Message, Name};

/// What stands in front of the name of a message in [`Any::type_url`] by convention. Only what is behind the last `/` counts.
const TYPE_URL_PREFIX: &str = "type.googleapis.com/";

/// `google.protobuf.Any`: a message of any type, serialized, with the name of its type.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct Any {
    /// Ends in `/` and the full name of the type: `type.googleapis.com/google.rpc.RetryInfo`.
    #[prost(string, tag = "1")]
    pub type_url: String,
    /// The message.
    #[prost(bytes = "vec", tag = "2")]
    pub value: Vec<u8>,
}

impl Any {
    /// Serializes a message.
    ///
    /// `fulmar-build` implements [`Name`] for the messages of a `.proto` if told so (`enable_type_names`).
    pub fn pack<M: Message + Name>(message: &M) -> Self {
        Self { type_url: format!("{TYPE_URL_PREFIX}{}", M::full_name()), value: message.encode_to_vec() }
    }

    /// The full name of the type, without what stands in front of it.
    pub fn type_name(&self) -> &str {
        self.type_url.rsplit('/').next().unwrap_or_default()
    }

    /// The message, if it is of type `M`.
    ///
    /// # Errors
    /// The type is `M`, and the bytes are none of it.
    pub fn unpack<M: Message + Name + Default>(&self) -> Result<Option<M>, DecodeError> {
        if self.type_name() != M::full_name() {
            return Ok(None);
        }
        M::decode(self.value.as_slice()).map(Some)
    }
}

/// `google.protobuf.Duration`: a span of time, which may be negative.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Message)]
pub struct Duration {
    /// Whole seconds.
    #[prost(int64, tag = "1")]
    pub seconds: i64,
    /// Nanoseconds of the rest, less than a second and with the sign of the seconds.
    #[prost(int32, tag = "2")]
    pub nanos: i32,
}

/// The most seconds that the type allows, some 10,000 years.
const SECONDS_MAX: u64 = 315_576_000_000;

impl From<time::Duration> for Duration {
    /// More than the type allows becomes the most that it does.
    fn from(duration: time::Duration) -> Self {
        match duration.as_secs() {
            seconds @ 0..SECONDS_MAX => {
                Self { seconds: seconds as i64, nanos: duration.subsec_nanos() as i32 }
            }
            _ => Self { seconds: SECONDS_MAX as i64, nanos: 0 },
        }
    }
}

impl From<Duration> for time::Duration {
    /// What is negative, or no duration, becomes zero.
    fn from(duration: Duration) -> Self {
        match (u64::try_from(duration.seconds), u32::try_from(duration.nanos)) {
            (Ok(seconds), Ok(nanos @ 0..1_000_000_000)) => Self::new(seconds, nanos),
            _ => Self::ZERO,
        }
    }
}
