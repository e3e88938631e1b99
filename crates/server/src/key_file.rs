//! The file with the keys that the members of a cluster share: one key, or a YAML list of them.

use auth::{ClusterAuth, ClusterAuthMode, ClusterKeys};
use serde_yaml_ng::Value as Yaml;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use zeroize::Zeroizing;

/// As many keys as there may be, with room for white space.
const FILE_BYTES_MAX: u64 = 64 * 1024;

/// `security.clusterAuthMode` and `security.keyFile`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterAuthConfig {
    /// What is a proof.
    pub mode: ClusterAuthMode,
    /// Where the keys are.
    pub key_file: Option<PathBuf>,
}

impl ClusterAuthConfig {
    /// Reads the keys.
    ///
    /// # Errors
    /// A sentence: the file cannot be read, others may read it, or it has no key.
    pub fn load(&self) -> Result<ClusterAuth, String> {
        Ok(ClusterAuth {
            mode: self.mode,
            keys: self.key_file.as_deref().map(read).transpose()?,
        })
    }
}

fn read(path: &Path) -> Result<ClusterKeys, String> {
    let failed = |reason: &dyn std::fmt::Display| format!("keyFile {}: {reason}", path.display());
    let bytes = read_private("keyFile", path, FILE_BYTES_MAX)?;
    let text = std::str::from_utf8(&bytes).map_err(|_| failed(&"is not text in UTF-8"))?;
    parse(text).map_err(|reason| failed(&reason))
}

/// The bytes of a file that nobody but its owner may use; `option` is how errors name it.
pub(crate) fn read_private(option: &str, path: &Path, bytes_max: u64) -> Result<Zeroizing<Vec<u8>>, String> {
    let failed = |reason: &dyn std::fmt::Display| format!("{option} {}: {reason}", path.display());
    let file = std::fs::File::open(path).map_err(|error| failed(&error))?;
    // Of the open file: what is checked is what is read.
    let metadata = file.metadata().map_err(|error| failed(&error))?;
    if !metadata.is_file() {
        return Err(failed(&"is not a file"));
    }
    if metadata.mode() & 0o077 != 0 {
        let mode = metadata.mode() & 0o7777;
        return Err(failed(&format_args!(
            "permissions are too open: others than the owner may use it ({mode:04o}); chmod it to 0600 or 0400"
        )));
    }
    // Never longer than it is made here: what grows leaves copies behind.
    let mut bytes = Zeroizing::new(Vec::with_capacity(bytes_max as usize + 1));
    let read = file.take(bytes_max + 1).read_to_end(&mut bytes);
    if read.map_err(|error| failed(&error))? as u64 > bytes_max {
        return Err(failed(&format_args!("is longer than {} KiB", bytes_max >> 10)));
    }
    Ok(bytes)
}

/// The keys of a file's text.
fn parse(text: &str) -> Result<ClusterKeys, String> {
    // A list begins with a character that is not one of a key. YAML would take a key of digits for a number.
    let is_list = text.trim_start().starts_with(['-', '[', '"', '\'', '#', '%']);
    let texts = match is_list {
        false => vec![text.to_owned()],
        true => list(text)?,
    };
    ClusterKeys::new(texts).map_err(|error| error.to_string())
}

fn list(text: &str) -> Result<Vec<String>, String> {
    let yaml: Yaml = serde_yaml_ng::from_str(text).map_err(|error| format!("is neither a key nor YAML: {error}"))?;
    let key = |value: Yaml| match value {
        Yaml::String(key) => Ok(key),
        _ => Err("has something else than text in its list of keys; put keys in quotes".to_owned()),
    };
    match yaml {
        Yaml::Sequence(keys) => keys.into_iter().map(key).collect(),
        one => key(one).map(|key| vec![key]),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    fn keys(text: &str) -> Vec<String> {
        parse(text).unwrap().iter().map(str::to_owned).collect()
    }

    #[test]
    fn a_file_has_a_key_or_a_list_of_them() {
        assert_eq!(keys("abc def\nghi+/=\n"), ["abcdefghi+/="]);
        assert_eq!(keys("00123456"), ["00123456"], "no number");
        assert_eq!(keys("- abcdef\n- \"00123456\"\n"), ["abcdef", "00123456"]);
        assert_eq!(
            keys("# change of keys\n- |\n  abc\n  def\n- ghi\n  jkl\n"),
            ["abcdef", "ghijkl"]
        );
        assert_eq!(keys("[abcdef, 'ghijkl']"), ["abcdef", "ghijkl"]);
        for (text, said) in [
            ("", "0 characters"),
            ("abc", "3 characters"),
            ("- abcdef\n- 123456\n", "put keys in quotes"),
            ("- abcdef\n- [x]\n", "put keys in quotes"),
            ("- abcdef\n- x-y-zz\n", "'-'"),
            ("abc;defgh", "';'"),
            ("[]", "no key"),
            ("[", "neither a key nor YAML"),
        ] {
            let refused = parse(text).unwrap_err();
            assert!(refused.contains(said), "{text:?}: {refused}");
        }
    }

    #[test]
    fn only_its_owner_may_use_the_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("key");
        let config = ClusterAuthConfig {
            mode: ClusterAuthMode::KeyFile,
            key_file: Some(path.clone()),
        };
        assert!(config.load().unwrap_err().contains("key"), "it is not there");
        std::fs::write(&path, "abcdefgh").unwrap();
        for (mode, is_right) in [
            (0o600, true),
            (0o400, true),
            (0o640, false),
            (0o604, false),
            (0o620, false),
        ] {
            std::fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            let loaded = config.load();
            assert_eq!(loaded.is_ok(), is_right, "{mode:o}: {loaded:?}");
        }
        std::fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        std::fs::write(&path, " ".repeat(70_000)).unwrap();
        assert!(config.load().unwrap_err().contains("64 KiB"));
        let config = ClusterAuthConfig {
            key_file: Some(directory.path().to_owned()),
            ..config
        };
        assert!(config.load().unwrap_err().contains("too open") || config.load().unwrap_err().contains("not a file"));
    }
}
