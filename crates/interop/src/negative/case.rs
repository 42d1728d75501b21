//! The names of the cases.

use std::fmt;
use std::str::FromStr;

/// What a server does to its connections.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)] // the table of the module says what each is
pub enum Case {
    GoAway,
    RstAfterHeader,
    RstDuringData,
    RstAfterData,
    Ping,
    MaxStreams,
    DataFramePadding,
    NoDataFramePadding,
}

impl Case {
    /// All cases.
    pub const ALL: [Self; 8] = [
        Self::GoAway,
        Self::RstAfterHeader,
        Self::RstDuringData,
        Self::RstAfterData,
        Self::Ping,
        Self::MaxStreams,
        Self::DataFramePadding,
        Self::NoDataFramePadding,
    ];

    /// The official name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::GoAway => "goaway",
            Self::RstAfterHeader => "rst_after_header",
            Self::RstDuringData => "rst_during_data",
            Self::RstAfterData => "rst_after_data",
            Self::Ping => "ping",
            Self::MaxStreams => "max_streams",
            Self::DataFramePadding => "data_frame_padding",
            Self::NoDataFramePadding => "no_df_padding_sanity_test",
        }
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Case {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|case| case.name() == name).ok_or_else(|| {
            format!("there is no case {name}; there are {}", Self::ALL.map(Self::name).join(", "))
        })
    }
}
