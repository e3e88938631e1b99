//! Errors as sentences for people.

/// An error with its causes, as far as it does not name them itself.
pub fn reasons(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if text.is_empty() {
            text = cause;
        } else if !text.ends_with(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_is_named_once() {
        let denied = || std::io::Error::new(std::io::ErrorKind::PermissionDenied, "denied");
        let names_it = crate::data_directory::DataDirectoryError::Io {
            operation: "lock",
            path: "/x".into(),
            source: denied(),
        };
        assert_eq!(reasons(&names_it.into()), "cannot lock /x: denied");
        let does_not = anyhow::Error::from(denied()).context("pid file").context("start");
        assert_eq!(reasons(&does_not), "start: pid file: denied");
    }
}
