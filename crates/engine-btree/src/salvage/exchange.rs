//! Putting a salvaged store in the damaged one's place.
//!
//! Beside the store's directory `<d>`: `<d>.salvage` is being filled; `<d>.salvaged` is whole and waits to take the
//! place; `<d>.damaged`, `<d>.damaged-2` and so on are what was replaced.
//!
//! 1. `<d>.salvage` is renamed to `<d>.salvaged`: from here on the result counts.
//! 2. `<d>` is renamed to a free `<d>.damaged`.
//! 3. `<d>.salvaged` is renamed to `<d>`.
//!
//! Each is made durable before the next. After a crash behind 1, opening goes on with 2 and 3; before it, the damaged
//! store is where it was.

use engine::{EngineError, Result};
use std::path::{Path, PathBuf};
use vfs::Env;

fn io<'p>(operation: &'static str, path: &'p Path) -> impl FnOnce(std::io::Error) -> EngineError + use<'p> {
    move |source| EngineError::Io {
        operation,
        path: path.to_owned(),
        source,
    }
}

/// A directory beside `directory`; `None` where that has no name of its own.
fn beside(directory: &Path, suffix: &str) -> Option<PathBuf> {
    let mut name = directory.file_name()?.to_owned();
    name.push(suffix);
    Some(directory.with_file_name(name))
}

fn parent(directory: &Path) -> &Path {
    let parent = directory.parent().filter(|parent| !parent.as_os_str().is_empty());
    parent.unwrap_or(Path::new("."))
}

fn rename(env: &Env, from: &Path, to: &Path) -> Result<()> {
    env.fs.rename(from, to).map_err(io("rename", from))?;
    env.fs.sync_directory(parent(to)).map_err(io("sync", parent(to)))
}

/// The directories of an unfinished and of a finished result.
pub(super) fn names(directory: &Path) -> Result<(PathBuf, PathBuf)> {
    let names = beside(directory, ".salvage").zip(beside(directory, ".salvaged"));
    names.ok_or_else(|| EngineError::Invalid {
        operation: "salvage",
        reason: format!("{} has no name: give the directory by its name", directory.display()),
    })
}

pub(super) fn remove(env: &Env, path: &Path) -> Result<()> {
    env.fs.remove_directory_all(path).map_err(io("remove", path))
}

/// An empty directory, whatever lay there.
pub(super) fn make_empty(env: &Env, path: &Path) -> Result<()> {
    remove(env, path)?;
    vfs::create_directory_durably(&*env.fs, path).map_err(io("create", path))
}

/// Steps 1 to 3. Answers where the damaged files lie now.
pub(super) fn exchange(env: &Env, directory: &Path, unfinished: &Path, finished: &Path) -> Result<PathBuf> {
    rename(env, unfinished, finished)?;
    let kept = finish(env, directory)?;
    Ok(kept.unwrap_or_else(|| directory.to_owned()))
}

/// Completes an exchange that has passed step 1, if there is one. Answers where the damaged files lie now.
pub(crate) fn finish(env: &Env, directory: &Path) -> Result<Option<PathBuf>> {
    let exists = |path: &Path| env.fs.exists(path).map_err(io("find", path));
    let Some(finished) = beside(directory, ".salvaged") else {
        return Ok(None);
    };
    if !exists(&finished)? {
        return Ok(None);
    }
    let mut kept = None;
    if exists(directory)? {
        // An empty one was made by whoever is about to open the store.
        if env.fs.list(directory).map_err(io("list", directory))?.is_empty() {
            env.fs
                .remove_directory_all(directory)
                .map_err(io("remove", directory))?;
        } else {
            let aside = free_name(env, directory)?;
            rename(env, directory, &aside)?;
            kept = Some(aside);
        }
    }
    rename(env, &finished, directory)?;
    Ok(kept)
}

fn free_name(env: &Env, directory: &Path) -> Result<PathBuf> {
    let mut number = 1u64;
    loop {
        let suffix = match number {
            1 => ".damaged".to_owned(),
            _ => format!(".damaged-{number}"),
        };
        let name = beside(directory, &suffix).unwrap_or_else(|| directory.to_owned());
        if !env.fs.exists(&name).map_err(io("find", &name))? {
            return Ok(name);
        }
        number += 1;
    }
}
