//! `$facet`: one document of the results that several pipelines have on the same documents.
//!
//! 1. A batch of the source's documents is given to each pipeline, which is asked for results until it has taken them
//!    all in: its source pauses then, and so does the pipeline ([`QueryError::Paused`]).
//! 2. 1 is repeated until the source ends, or until no pipeline wants more.
//!
//! So no more of the input is held than a batch, and what the pipelines themselves hold of it. The results are held.

use super::filter::Checkpoint;
use super::source::FilledSource;
use super::{Pipeline, STAGE_BYTES_MAX, Stage, StageContext, failure};
use crate::error::QueryError;
use crate::evaluation::StageMemory;
use crate::value::{DocumentWriter, SharedDocument};

/// Bytes of documents that end a batch.
const BATCH_BYTES: usize = 1 << 20;

/// The running stage.
pub(super) struct FacetStage {
    source: Box<dyn Stage>,
    facets: Vec<Facet>,
    batch: Batch,
    /// Bytes of the results so far, of all pipelines.
    bytes: usize,
    memory: StageMemory,
    done: bool,
}

/// One pipeline.
struct Facet {
    name: String,
    source: FilledSource,
    /// `None` once it has no more results.
    top: Option<Box<dyn Stage>>,
    results: Vec<SharedDocument>,
}

/// Documents of the source that the pipelines have not been given yet.
#[derive(Default)]
struct Batch {
    documents: Vec<SharedDocument>,
    bytes: usize,
    is_last: bool,
    memory: StageMemory,
}

impl Batch {
    fn read(&mut self, source: &mut dyn Stage, context: &mut StageContext<'_>) -> Result<(), QueryError> {
        let mut checkpoint = Checkpoint::default();
        while self.bytes < BATCH_BYTES && !self.is_last {
            let Some(document) = source.next(context)? else {
                self.is_last = true;
                break;
            };
            checkpoint.tick(context)?;
            self.bytes += document.as_bytes().len() + size_of::<SharedDocument>();
            self.documents.push(document.kept());
        }
        self.memory.grow(context.evaluation, self.bytes)
    }

    fn clear(&mut self) {
        self.documents.clear();
        self.bytes = 0;
        self.memory.clear();
    }
}

impl FacetStage {
    pub(super) fn new(source: Box<dyn Stage>, facets: Vec<(String, Pipeline)>) -> Result<Self, QueryError> {
        let facets = facets.into_iter().map(|(name, pipeline)| {
            let source = FilledSource::default();
            Ok(Facet {
                name,
                top: Some(pipeline.run(Box::new(source.clone()))?),
                source,
                results: Vec::new(),
            })
        });
        Ok(Self {
            source,
            facets: facets.collect::<Result<_, QueryError>>()?,
            batch: Batch::default(),
            bytes: 0,
            memory: StageMemory::default(),
            done: false,
        })
    }

    /// Gives every pipeline all documents that it wants.
    fn run(&mut self, context: &mut StageContext<'_>) -> Result<(), QueryError> {
        while self.facets.iter().any(|facet| facet.top.is_some()) {
            self.batch.read(&mut *self.source, context)?;
            for place in 0..self.facets.len() {
                if self.facets[place].top.is_none() {
                    continue;
                }
                let documents = self.batch.documents.iter().cloned();
                match self.batch.is_last {
                    true => self.facets[place].source.fill(documents),
                    false => self.facets[place].source.fill_part(documents),
                }
                self.take_results(place, context)?;
            }
            self.batch.clear();
        }
        Ok(())
    }

    /// Takes a pipeline's results until there are none, or none before the next batch.
    fn take_results(&mut self, place: usize, context: &mut StageContext<'_>) -> Result<(), QueryError> {
        let facet = &mut self.facets[place];
        while let Some(top) = &mut facet.top {
            match top.next(context) {
                Ok(Some(document)) => {
                    context.evaluation.step()?;
                    let bytes = document.as_bytes().len() + size_of::<SharedDocument>();
                    self.bytes += bytes;
                    if self.bytes > STAGE_BYTES_MAX {
                        return too_large(self.bytes);
                    }
                    self.memory.grow(context.evaluation, bytes)?;
                    facet.results.push(document.kept());
                }
                Ok(None) => facet.top = None,
                Err(QueryError::Paused) => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn document(&mut self) -> Result<SharedDocument, QueryError> {
        let mut out = Vec::with_capacity(256);
        let mut writer = DocumentWriter::new(&mut out);
        for facet in self.facets.drain(..) {
            let mut array = writer.array(&facet.name);
            facet
                .results
                .into_iter()
                .for_each(|document| array.push_document(&document));
            array.finish();
        }
        writer.finish();
        self.memory.clear();
        SharedDocument::computed(out)
    }
}

fn too_large<T>(bytes: usize) -> Result<T, QueryError> {
    failure(
        4031700,
        format!("document constructed by $facet is {bytes} bytes, which exceeds the limit of {STAGE_BYTES_MAX} bytes"),
    )
}

impl Stage for FacetStage {
    fn next(&mut self, context: &mut StageContext<'_>) -> Result<Option<SharedDocument>, QueryError> {
        if self.done {
            return Ok(None);
        }
        self.run(context)?;
        self.done = true;
        self.document().map(Some)
    }
}
