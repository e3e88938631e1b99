//! Where one call keeps its data: directories made for it, whose names nobody can foresee, and that nobody else may
//! look into. Whatever is removed is below them.

use crate::error::{Result, StressError};
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// What the names begin with.
const PREFIX: &str = "tenon-stress-";

/// See the module. Dropping it removes those directories that are empty then: a failed cell leaves its server's log.
#[derive(Debug)]
pub struct Folders(Vec<PathBuf>);

impl Folders {
    /// One in each of these.
    pub(crate) fn make(parents: &[PathBuf]) -> Result<Self> {
        let mut made = Self(Vec::new());
        for parent in parents {
            made.0.push(make_one(parent).map_err(|source| StressError::File {
                verb: "making a directory in",
                path: parent.clone(),
                source,
            })?);
        }
        Ok(made)
    }

    /// What they would be called.
    pub(crate) fn imagine(parents: &[PathBuf]) -> Vec<PathBuf> {
        parents
            .iter()
            .map(|parent| parent.join(format!("{PREFIX}XXXXXX")))
            .collect()
    }

    /// A directory in each of them, for one repetition: what another one leaves stays as it is.
    pub fn within(&self, name: &str) -> Self {
        Self(self.0.iter().map(|path| path.join(name)).collect())
    }

    /// Where they are.
    pub fn paths(&self) -> &[PathBuf] {
        &self.0
    }
}

fn make_one(parent: &Path) -> std::io::Result<PathBuf> {
    fs::create_dir_all(parent)?;
    let made = tempfile::Builder::new()
        .prefix(PREFIX)
        .permissions(Permissions::from_mode(0o700))
        .tempdir_in(parent)?;
    Ok(made.keep())
}

impl Drop for Folders {
    fn drop(&mut self) {
        for path in &self.0 {
            let _ = fs::remove_dir(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two calls at once removed each other's data, and whoever made the folder beforehand chose what was removed.
    #[test]
    fn each_call_has_directories_of_its_own() {
        let parent = tempfile::tempdir().expect("a directory");
        let parents = [parent.path().join("data"), parent.path().join("data")];
        let (one, other) = (Folders::make(&parents), Folders::make(&parents));
        let (one, other) = (one.expect("made"), other.expect("made"));
        let mut all: Vec<&PathBuf> = one.paths().iter().chain(other.paths()).collect();
        all.sort();
        all.dedup();
        assert_eq!(all.len(), 4);
        for path in all {
            let mode = fs::metadata(path).expect("it is there").permissions().mode();
            assert_eq!(mode & 0o777, 0o700);
        }
        let (first, second) = (one.within("repetition1"), one.within("repetition2"));
        for path in first.paths().iter().chain(second.paths()) {
            fs::create_dir(path).expect("made");
        }
        fs::write(first.paths()[0].join("server.log"), "").expect("written");
        let log = first.paths()[0].join("server.log");
        drop((first, second));
        let left = fs::read_dir(&one.paths()[0]).expect("it is there").count();
        assert!(log.exists() && left == 1, "what is empty is removed");
        let kept = one.paths()[0].clone();
        drop((one, other));
        let left: Vec<_> = fs::read_dir(&parents[0]).expect("it is there").flatten().collect();
        assert_eq!(left.len(), 1);
        assert_eq!(left[0].path(), kept);
    }
}
