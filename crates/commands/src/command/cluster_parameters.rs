//! `getClusterParameter`, `setClusterParameter`.

use super::{user_store, user_writes};
use crate::cluster_parameters::{ALL, COLLECTION, ClusterParameter, TIME};
use crate::definition::{Access, Command};
use crate::error::{CommandError, Result};
use crate::invocation::Invocation;
use crate::metrics::OperationKind;
use crate::query_settings;
use crate::reply::Reply;
use crate::server::Server;
use auth::Action;
use bson::raw::RawBsonRef;
use bson::{Document, Timestamp, doc};
use std::sync::Arc;
use storage::Namespace;
use wire::ErrorCode;

/// `getClusterParameter`.
pub const GET_CLUSTER_PARAMETER: Command = Command::new(
    "getClusterParameter",
    "Shows parameters that all members go by.",
    OperationKind::Command,
    Access::cluster(&[Action::GetClusterParameter]),
    get,
)
.admin_only()
.secondary_ok();
/// `setClusterParameter`.
pub const SET_CLUSTER_PARAMETER: Command = Command::new(
    "setClusterParameter",
    "Sets a parameter that all members go by, and keeps it.",
    OperationKind::Command,
    Access::cluster(&[Action::SetClusterParameter]),
    set,
)
.admin_only();

fn collection() -> Result<Namespace> {
    Ok(Namespace::parse(COLLECTION)?)
}

fn get(call: &mut Invocation<'_>, reply: &mut Reply<'_>) -> Result<()> {
    call.for_each_field(|_, _| Ok(false))?;
    let name = call.command.name;
    let wanted: Vec<&'static ClusterParameter> = match call.target()? {
        RawBsonRef::String("*") => ALL.iter().collect(),
        RawBsonRef::String(wanted) => vec![ClusterParameter::find(wanted)?],
        RawBsonRef::Array(names) => {
            let mut wanted = Vec::new();
            for (index, value) in names.into_iter().enumerate() {
                match value? {
                    RawBsonRef::String(name) => wanted.push(ClusterParameter::find(name)?),
                    other => {
                        return Err(crate::arguments::wrong_type(
                            name,
                            &index.to_string(),
                            other,
                            "type 'string'",
                        ));
                    }
                }
            }
            wanted
        }
        other => {
            return Err(crate::arguments::wrong_type(
                name,
                name,
                other,
                "types '[string, array]'",
            ));
        }
    };
    if wanted.is_empty() {
        return Err(CommandError::bad_value(
            "Must supply at least one cluster server parameter name to getClusterParameter",
        ));
    }
    let kept = kept(call)?;
    reply.open_array("clusterParameters");
    for (index, parameter) in wanted.into_iter().enumerate() {
        let shown = match of(&kept, parameter) {
            Some(kept) => kept.clone(),
            None => document(parameter, Timestamp { time: 0, increment: 0 }, (parameter.default)()),
        };
        reply.value(&index.to_string(), &shown.into());
    }
    reply.close();
    Ok(())
}

fn set(call: &mut Invocation<'_>, _reply: &mut Reply<'_>) -> Result<()> {
    let name = call.command.name;
    let target = call.required_target()?;
    let RawBsonRef::Document(given) = target else {
        return Err(crate::arguments::wrong_type(name, name, target, "type 'object'"));
    };
    let mut fields = given.iter();
    let first = fields.next().transpose()?;
    if fields.next().is_some() {
        return Err(CommandError::new(
            ErrorCode::InvalidOptions,
            format!("{name} only supports setting exactly one parameter"),
        ));
    }
    let (parameter, value) = first.map_or(("", RawBsonRef::Null), |(name, value)| (name.as_str(), value));
    let parameter = ClusterParameter::find(parameter)?;
    let RawBsonRef::Document(value) = value else {
        return Err(CommandError::bad_value("Cluster parameter value must be an object"));
    };
    for field in value {
        let (field, _) = field?;
        if field.as_str().starts_with('$') {
            return Err(CommandError::new(
                ErrorCode::DollarPrefixedFieldName,
                format!(
                    "the field name '{}' of a cluster parameter begins with '$'",
                    field.as_str()
                ),
            ));
        }
    }
    let value = (parameter.read)(crate::arguments::Arguments::of(parameter.name), value)?;
    let document = document(parameter, call.server.storage.applied().time.to_timestamp(), value);
    user_store::upsert_in(call, &collection()?, &doc! { "_id": parameter.name }, &document)
}

fn document(parameter: &ClusterParameter, time: Timestamp, value: Document) -> Document {
    let mut document = doc! { "_id": parameter.name, TIME: time };
    document.extend(value);
    document
}

fn kept(call: &mut Invocation<'_>) -> Result<Vec<Document>> {
    user_store::find_in(call, &collection()?, &doc! {})
}

fn of<'k>(kept: &'k [Document], parameter: &ClusterParameter) -> Option<&'k Document> {
    kept.iter()
        .find(|kept| kept.get_str("_id").is_ok_and(|id| id == parameter.name))
}

impl Server {
    /// Takes up what is kept: at the start, and when it may have been written.
    pub(crate) fn load_cluster_parameters(self: &Arc<Self>) -> Result<()> {
        // What is read last is taken up last.
        let _loading = self.cluster_parameters.loading.lock();
        let kept = self.own_call(kept)?;
        for parameter in &ALL {
            parameter.take_up(self, of(&kept, parameter));
        }
        self.query_settings.take_up(
            kept.iter()
                .find(|kept| kept.get_str("_id").is_ok_and(|id| id == query_settings::ID)),
        );
        self.own_call(user_writes::load)
    }
}
