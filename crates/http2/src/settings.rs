//! What the peer has said in its SETTINGS (RFC 9113 §6.5), and what we say in ours.

use crate::flow::{WINDOW_INITIAL, WINDOW_MAX};
use crate::frame::{STREAM_ID_MAX, Setting};
use crate::{Config, Error, ErrorCode, Role};

/// The largest frame payload before SETTINGS say otherwise, and the smallest that they may say (RFC 9113 §6.5.2).
pub(crate) const FRAME_BYTES_MIN: u32 = 16_384;

/// The largest frame payload that SETTINGS may allow: 24 bits.
pub(crate) const FRAME_BYTES_MAX: u32 = (1 << 24) - 1;

/// The settings of the peer that bind this end.
#[derive(Clone, Debug)]
pub(crate) struct PeerSettings {
    /// `None` until the peer has said anything; then a limit, `u32::MAX` if it has set none.
    pub(crate) streams_max: Option<u32>,
    pub(crate) initial_window: u32,
    pub(crate) frame_bytes_max: u32,
    pub(crate) header_list_bytes_max: u32,
}

impl PeerSettings {
    pub(crate) const fn new() -> Self {
        Self {
            streams_max: None,
            initial_window: WINDOW_INITIAL,
            frame_bytes_max: FRAME_BYTES_MIN,
            header_list_bytes_max: u32::MAX,
        }
    }

    /// Takes one entry over, if it is legal from a peer of an end with this role.
    pub(crate) fn apply(&mut self, entry: Setting, role: Role) -> Result<(), Error> {
        match entry {
            Setting::EnablePush(value) if value > u32::from(role == Role::Server) => {
                return Err(Error::protocol("SETTINGS_ENABLE_PUSH with a value that is not allowed"));
            }
            Setting::MaxConcurrentStreams(value) => self.streams_max = Some(value),
            Setting::InitialWindowSize(value) if value > WINDOW_MAX => {
                let text = "SETTINGS_INITIAL_WINDOW_SIZE above 2^31-1";
                return Err(Error::peer(ErrorCode::FlowControlError, text));
            }
            Setting::InitialWindowSize(value) => self.initial_window = value,
            Setting::MaxFrameSize(value) if !(FRAME_BYTES_MIN..=FRAME_BYTES_MAX).contains(&value) => {
                return Err(Error::protocol("SETTINGS_MAX_FRAME_SIZE outside of 2^14 to 2^24-1"));
            }
            Setting::MaxFrameSize(value) => self.frame_bytes_max = value,
            Setting::MaxHeaderListSize(value) => self.header_list_bytes_max = value,
            Setting::HeaderTableSize(_) | Setting::EnablePush(_) | Setting::Unknown(..) => {}
        }
        Ok(())
    }
}

/// Brings the values of a configuration that the protocol bounds within its bounds.
pub(crate) fn within_bounds(config: Config) -> Config {
    Config {
        stream_id_max: config.stream_id_max.min(STREAM_ID_MAX),
        stream_window_bytes: config.stream_window_bytes.clamp(1, WINDOW_MAX),
        connection_window_bytes: config.connection_window_bytes.clamp(WINDOW_INITIAL, WINDOW_MAX),
        window_bytes_max: config.window_bytes_max.min(1 << 30),
        frame_bytes_max: config.frame_bytes_max.clamp(FRAME_BYTES_MIN, FRAME_BYTES_MAX),
        frame_bytes_sent_max: config.frame_bytes_sent_max.clamp(FRAME_BYTES_MIN, FRAME_BYTES_MAX),
        ..config
    }
}

/// The SETTINGS that an end with this role and configuration sends first; values that are the protocol's own are left out.
pub(crate) fn own(role: Role, config: &Config) -> impl Iterator<Item = Setting> {
    let unless = |initial: u32, value: u32| (value != initial).then_some(value);
    let per_role = match role {
        Role::Client => Setting::EnablePush(0),
        Role::Server => Setting::MaxConcurrentStreams(config.streams_max),
    };
    [
        Some(per_role),
        unless(4_096, config.header_table_bytes_max).map(Setting::HeaderTableSize),
        unless(WINDOW_INITIAL, config.stream_window_bytes).map(Setting::InitialWindowSize),
        unless(FRAME_BYTES_MIN, config.frame_bytes_max).map(Setting::MaxFrameSize),
        Some(Setting::MaxHeaderListSize(config.header_list_bytes_max)),
    ]
    .into_iter()
    .flatten()
}
