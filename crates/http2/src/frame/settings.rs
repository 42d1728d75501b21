use super::u32_at;

/// One entry of a SETTINGS frame (RFC 9113 §6.5.2).
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Setting {
    HeaderTableSize(u32),
    EnablePush(u32),
    MaxConcurrentStreams(u32),
    InitialWindowSize(u32),
    MaxFrameSize(u32),
    MaxHeaderListSize(u32),
    /// To be ignored.
    Unknown(u16, u32),
}

impl Setting {
    pub(crate) fn to_bytes(self) -> [u8; 6] {
        let (id, value) = match self {
            Self::HeaderTableSize(value) => (0x1, value),
            Self::EnablePush(value) => (0x2, value),
            Self::MaxConcurrentStreams(value) => (0x3, value),
            Self::InitialWindowSize(value) => (0x4, value),
            Self::MaxFrameSize(value) => (0x5, value),
            Self::MaxHeaderListSize(value) => (0x6, value),
            Self::Unknown(id, value) => (id, value),
        };
        let [i0, i1] = u16::to_be_bytes(id);
        let [v0, v1, v2, v3] = value.to_be_bytes();
        [i0, i1, v0, v1, v2, v3]
    }

    fn from_bytes(bytes: &[u8; 6]) -> Self {
        let value = u32_at(bytes, 2);
        match u16::from_be_bytes([bytes[0], bytes[1]]) {
            0x1 => Self::HeaderTableSize(value),
            0x2 => Self::EnablePush(value),
            0x3 => Self::MaxConcurrentStreams(value),
            0x4 => Self::InitialWindowSize(value),
            0x5 => Self::MaxFrameSize(value),
            0x6 => Self::MaxHeaderListSize(value),
            unknown => Self::Unknown(unknown, value),
        }
    }
}

/// The entries of a SETTINGS payload, in order.
pub(crate) fn entries(payload: &[u8]) -> impl Iterator<Item = Setting> {
    payload.as_chunks::<6>().0.iter().map(Setting::from_bytes)
}
