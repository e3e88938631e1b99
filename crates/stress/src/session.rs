//! The whole run: which engines and folders, every cell in turn, and what is said about those that cannot be.

use crate::cell::{CellOutcome, CellResult, measure};
use crate::error::{Result, StressError};
use crate::event::{Event, Observer};
use crate::folders::Folders;
use crate::matrix::{Cell, cells};
use crate::plan::Plan;
use crate::settings::Settings;
use bench::chain;
use bench::interrupt::Interrupt;
use bench::server::{Build, build_of, free_address};
use std::path::{Path, PathBuf};

/// What a run needs beside its settings.
#[derive(Clone, Debug)]
pub struct Bench {
    /// The server program.
    pub program: PathBuf,
    /// What it says about itself.
    pub build: Build,
    /// Where data goes: a directory in each of these, one at least.
    pub folders: Vec<PathBuf>,
    /// Engines of the matrix.
    pub engines: Vec<String>,
}

impl Bench {
    /// Looks at the program; nothing is made. `program`: when the settings name none.
    pub fn new(settings: &Settings, program: &Path) -> Result<Self> {
        let program = settings.program.clone().unwrap_or_else(|| program.to_owned());
        let build = build_of(&program).map_err(|error| StressError::Program {
            program: program.clone(),
            reason: chain(&error),
        })?;
        let engines = engines(settings, &build, &program)?;
        let given = match settings.folders.is_empty() {
            true => vec![default_folder()],
            false => settings.folders.clone(),
        };
        let absolute = |folder: PathBuf| {
            std::path::absolute(&folder).map_err(|source| StressError::File {
                verb: "looking for",
                path: folder,
                source,
            })
        };
        Ok(Self {
            program,
            build,
            folders: given.into_iter().map(absolute).collect::<Result<_>>()?,
            engines,
        })
    }

    /// Makes the directories of a run, before the first cell.
    pub fn make_folders(&self) -> Result<Folders> {
        Folders::make(&self.folders)
    }

    /// The cells of the run.
    pub fn cells(&self, settings: &Settings) -> Vec<Cell> {
        cells(settings, &self.engines)
    }

    fn plan(&self, settings: &Settings, cell: &Cell, folders: &[PathBuf]) -> Result<Plan> {
        let mut ports = Vec::new();
        while ports.len() < settings.servers() as usize {
            let port = match settings.port {
                0 => free_address()
                    .map_err(|error| StressError::Contradiction(chain(&error)))?
                    .port(),
                first => first + ports.len() as u16,
            };
            if !ports.contains(&port) {
                ports.push(port);
            }
        }
        Ok(Plan::new(settings, cell, (&self.program, &self.build), folders, &ports))
    }
}

/// Where large temporary files go: `/tmp` is often a part of the memory.
fn default_folder() -> PathBuf {
    std::env::var_os("TMPDIR").map_or_else(|| PathBuf::from("/var/tmp"), PathBuf::from)
}

/// The engines that were asked for, or all the program says it has.
fn engines(settings: &Settings, build: &Build, program: &Path) -> Result<Vec<String>> {
    if !settings.engines.is_empty() {
        return Ok(settings.engines.clone());
    }
    if build.engines.is_empty() {
        return Err(StressError::Program {
            program: program.to_owned(),
            reason: "it does not say which storage engines it has: name them by --engines or server.engines".to_owned(),
        });
    }
    Ok(build.engines.clone())
}

/// Tells every step of every cell and does none of them.
pub fn dry_run(bench: &Bench, settings: &Settings, observer: Observer<'_>) -> Result<()> {
    let cells = bench.cells(settings);
    let folders = Folders::imagine(&bench.folders);
    for (index, cell) in cells.iter().enumerate() {
        if let Some(reason) = cell.impossible(settings) {
            observer(Event::Result(&CellResult::new(
                cell.clone(),
                CellOutcome::Impossible(reason),
            )));
            continue;
        }
        observer(Event::Cell {
            number: index + 1,
            of: cells.len(),
            cell,
        });
        let plan = bench.plan(settings, cell, &folders)?;
        let lines = plan.start_lines().into_iter().chain(plan.admin_lines());
        lines
            .chain(plan.flush_lines())
            .chain(plan.stop_lines())
            .for_each(|line| observer(Event::Line(&line)));
    }
    Ok(())
}

/// Measures every cell, in the directories of the run. After Ctrl-C it returns those that were measured, the one that
/// was stopped included.
pub fn run(
    bench: &Bench,
    settings: &Settings,
    folders: &Folders,
    interrupt: &Interrupt,
    observer: Observer<'_>,
) -> Vec<CellResult> {
    let cells = bench.cells(settings);
    let mut results = Vec::with_capacity(cells.len());
    for (index, cell) in cells.iter().enumerate() {
        if interrupt.asked() {
            break;
        }
        let result = match cell.impossible(settings) {
            Some(reason) => CellResult::new(cell.clone(), CellOutcome::Impossible(reason)),
            None => {
                observer(Event::Cell {
                    number: index + 1,
                    of: cells.len(),
                    cell,
                });
                match bench.plan(settings, cell, folders.paths()) {
                    Ok(plan) => measure(settings, &plan, cell, run_id(settings, index), interrupt, observer),
                    Err(error) => CellResult::new(cell.clone(), CellOutcome::Failed(error.to_string())),
                }
            }
        };
        observer(Event::Result(&result));
        results.push(result);
    }
    results
}

/// Tells the documents of cells apart; the same for the same settings.
fn run_id(settings: &Settings, index: usize) -> i64 {
    (settings.seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 16) as i64 + index as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn build(engines: &[&str]) -> Build {
        Build {
            version: "tenond 0.1.0".to_owned(),
            engines: engines.iter().map(|&engine| engine.to_owned()).collect(),
        }
    }

    #[test]
    fn all_engines_are_those_the_program_names() {
        let all = engines(&Settings::default(), &build(&["one", "two"]), Path::new("x")).expect("it names them");
        assert_eq!(all, ["one", "two"]);
        let some = Settings {
            engines: vec!["three".to_owned()],
            ..Settings::default()
        };
        // The program decides whether it has it; its answer is the cell's.
        assert_eq!(
            engines(&some, &build(&["one"]), Path::new("x")).expect("given"),
            ["three"]
        );
        let error = engines(&Settings::default(), &build(&[]), Path::new("mongod")).expect_err("unknown");
        assert!(error.to_string().contains("name them by --engines"), "{error}");
    }

    #[test]
    fn runs_differ_from_cell_to_cell_and_not_from_day_to_day() {
        let settings = Settings::default();
        assert_eq!(run_id(&settings, 3), run_id(&settings, 3));
        assert_ne!(run_id(&settings, 3), run_id(&settings, 4));
    }

    #[test]
    fn a_dry_run_tells_every_cell_and_makes_nothing() {
        let folder = tempfile::tempdir().expect("a directory");
        let settings = Settings {
            memory_bytes: 1 << 30,
            ..Settings::default()
        };
        let bench = Bench {
            program: "/nowhere/tenond".into(),
            build: build(&[]),
            folders: vec![folder.path().to_owned()],
            engines: vec!["rocksdb".to_owned(), "inMemory".to_owned()],
        };
        let (mut cells, mut starts, mut not_possible) = (0, 0, 0);
        dry_run(&bench, &settings, &mut |event| match event {
            Event::Cell { .. } => cells += 1,
            Event::Line(line) if line.starts_with("CMD> /nowhere/tenond") => starts += 1,
            Event::Result(result) => {
                assert!(
                    matches!(result.outcome, CellOutcome::Impossible(_)),
                    "nothing is measured"
                );
                not_possible += 1;
            }
            _ => {}
        })
        .expect("nothing can go wrong");
        assert_eq!((cells, starts, not_possible), (36, 36, 12));
        let made = std::fs::read_dir(folder.path()).expect("it is there").count();
        assert_eq!(made, 0);
    }
}
