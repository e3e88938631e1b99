//! The option `--invalidUtf8`: what becomes of documents with text that is not UTF-8.

use ::dump::InvalidText;
use clap::ValueEnum;
use clap::builder::{PossibleValuesParser, TypedValueParser};

/// What the option says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum InvalidUtf8 {
    /// Ends at the first
    Stop,
    /// Leaves them out
    Skip,
    /// Puts U+FFFD for what is not UTF-8
    Replace,
}

impl InvalidUtf8 {
    /// What becomes of them; `None` where they end it.
    pub fn choice(self) -> Option<InvalidText> {
        match self {
            Self::Stop => None,
            Self::Skip => Some(InvalidText::Skip),
            Self::Replace => Some(InvalidText::Replace),
        }
    }
}

/// For a command that never ends at such a document.
pub fn goes_on() -> impl TypedValueParser<Value = InvalidText> {
    PossibleValuesParser::new(["replace", "skip"]).map(|text| match text.as_str() {
        "skip" => InvalidText::Skip,
        _ => InvalidText::Replace,
    })
}

/// How many were left out and replaced, in words.
pub fn told(left_out: u64, replaced: u64) -> Vec<String> {
    let mut told = Vec::new();
    if left_out > 0 {
        told.push(format!("{left_out} left out for text that is not UTF-8"));
    }
    if replaced > 0 {
        told.push(format!("text that is not UTF-8 was replaced in {replaced}"));
    }
    told
}

/// Behind an error that names such a document.
pub const ADVICE: &str = "--invalidUtf8 skip or replace goes on";
