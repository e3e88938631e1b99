//! Reading what the generator made.
#![allow(clippy::unwrap_used)]

use crate::generator::{Files, Made, Place};
use rescue::{DataDirectory, Database, Finding, Findings, OpenOptions, Severity, Shutdown, Walked};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use vfs::{Access, FileSystem, SimulatedFs};

pub fn disk(files: &Files) -> SimulatedFs {
    let fs = SimulatedFs::new(1);
    let root = Path::new("/data");
    fs.create_directory_all(root).unwrap();
    for (name, bytes) in files {
        let path = root.join(name);
        fs.create_directory_all(path.parent().unwrap()).unwrap();
        let file = fs.open(&path, Access::CreateNew).unwrap();
        file.write_all_at(bytes, 0).unwrap();
    }
    fs
}

pub fn open(files: &Files) -> rescue::Result<DataDirectory> {
    DataDirectory::open(Arc::new(disk(files)), Path::new("/data"), &OpenOptions::default())
}

/// Everything that came out of a directory.
#[derive(Debug, Default)]
pub struct Everything {
    pub documents: BTreeMap<String, Vec<Vec<u8>>>,
    pub walked: BTreeMap<String, Walked>,
    pub findings: Vec<Finding>,
    pub shutdown: Option<Shutdown>,
}

impl Everything {
    pub fn damages(&self) -> Vec<String> {
        let damages = self
            .findings
            .iter()
            .filter(|finding| finding.fault.severity() == Severity::Damage);
        damages.map(ToString::to_string).collect()
    }
}

pub fn read_database(database: &Database<'_>, everything: &mut Everything) {
    everything.findings.extend_from_slice(database.findings().list());
    for collection in database.collections() {
        let mut findings = Findings::default();
        let mut documents = Vec::new();
        let walked = database
            .documents(collection, &mut findings, &mut |bytes| {
                wire::validate_document(bytes).expect("only valid documents are given out");
                documents.push(bytes.to_vec());
                Ok(())
            })
            .unwrap();
        assert_eq!(walked.documents, documents.len() as u64);
        let name = format!("{}.{}", database.name(), collection.name);
        everything.findings.extend_from_slice(findings.list());
        everything.walked.insert(name.clone(), walked);
        everything.documents.insert(name, documents);
    }
}

pub fn read(files: &Files) -> Everything {
    let directory = open(files).unwrap();
    let mut everything = Everything {
        shutdown: Some(directory.shutdown()),
        ..Everything::default()
    };
    everything.findings.extend_from_slice(directory.findings().list());
    for name in directory.databases() {
        read_database(&directory.database(&name).unwrap(), &mut everything);
    }
    everything
}

impl Made {
    pub fn file(&mut self, number: usize) -> &mut Vec<u8> {
        self.files.get_mut(&format!("shop.{number}")).unwrap()
    }

    pub fn place(&self, namespace: &str, n: usize) -> Place {
        self.records[namespace][n]
    }
}
