//! The OpenAPI document: which requests programs may send, and what the answers are.
//!
//! `assets/openapi.json` has the requests. The schemas of answers in JSON come from the types that are serialized, so
//! that no field can be left out.

use std::sync::Arc;

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use bytes::Bytes;
use schemars::generate::SchemaSettings;
use serde_json::{Value, json};

use super::history::{NodeHistory, StreamHistory};
use super::nodes::Nodes;
use super::problem::Problem;
use super::sessions::SessionList;
use super::streams::{StreamInfo, StreamList};
use super::titles::{TitleInfo, TitleList};
use super::{Control, revalidated};

/// The document without its schemas.
const TEXT: &str = include_str!("../../assets/openapi.json");

/// The document as it is sent.
pub(super) struct Document {
    body: Bytes,
    etag: String,
}

impl Document {
    /// Makes the document, which stays the same as long as the program runs.
    pub(super) fn make() -> Self {
        let body = Bytes::from(complete().to_string());
        let etag = format!("\"{:08x}\"", crc32fast::hash(&body));
        Self { body, etag }
    }
}

/// Adds the schemas and the program's version. Schemas of OpenAPI 3.1 are those of JSON Schema 2020-12.
fn complete() -> Value {
    let settings = SchemaSettings::draft2020_12().for_serialize().with(|settings| {
        settings.definitions_path = "/components/schemas".into();
        settings.meta_schema = None;
    });
    let mut schemas = settings.into_generator();
    schemas.subschema_for::<StreamList>();
    schemas.subschema_for::<StreamInfo>();
    schemas.subschema_for::<Nodes>();
    schemas.subschema_for::<SessionList>();
    schemas.subschema_for::<TitleList>();
    schemas.subschema_for::<TitleInfo>();
    schemas.subschema_for::<NodeHistory>();
    schemas.subschema_for::<StreamHistory>();
    schemas.subschema_for::<Problem>();
    let mut document: Value =
        serde_json::from_str(TEXT).expect("the tests have read this constant");
    document["info"]["version"] = env!("CARGO_PKG_VERSION").into();
    let mut schemas = schemas.take_definitions(true);
    schemas.values_mut().for_each(name_values);
    document["components"]["schemas"] = schemas.into();
    document
}

/// Turns alternatives that are one text each into `enum`, which generators of clients know. The descriptions of the texts
/// go into that of the schema.
fn name_values(schema: &mut Value) {
    let text = |value: &Value, key: &str| Some(value.get(key)?.as_str()?.to_owned());
    let Some(alternatives) = schema["oneOf"].as_array() else { return };
    let values = alternatives.iter().map(|value| text(value, "const"));
    let Some(values) = values.collect::<Option<Vec<_>>>() else { return };
    let mut description = text(schema, "description").unwrap_or_default();
    for (value, alternative) in values.iter().zip(alternatives) {
        let meaning = text(alternative, "description").unwrap_or_default();
        description.push_str(&format!("\n\n`{value}`: {meaning}"));
    }
    *schema = json!({ "type": "string", "enum": values, "description": description });
}

/// Serves the document.
pub(super) async fn show(State(control): State<Arc<Control>>, headers: HeaderMap) -> Response {
    let Document { body, etag } = &control.openapi;
    revalidated(body.clone(), "application/json", etag, &headers)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::control::{ENDING, for_operators, for_viewers};

    /// The part of a path before its first parameter.
    fn fixed(path: &str) -> &str {
        path.split_once('{').map_or(path, |(fixed, _)| fixed)
    }

    #[test]
    fn every_route_is_described_and_nothing_else() {
        let document = complete();
        let described = document["paths"].as_object().unwrap().keys();
        let described: BTreeSet<_> = described.map(String::as_str).collect();
        let operators = for_operators().map(|(route, _)| fixed(route));
        let mut routes = for_viewers().map(|(route, _)| fixed(route)).to_vec();
        routes.extend(operators);
        routes.push(fixed(ENDING));
        for &route in &routes {
            let is_described = described.iter().any(|path| match route.ends_with('/') {
                true => path.starts_with(route),
                false => **path == *route,
            });
            assert!(is_described, "{route}");
        }
        // `metrics` and `webrtc` have these routes.
        let others = ["/metrics", "/live/"];
        for path in described {
            let is_route = routes.contains(&path)
                || routes.iter().chain(&others).any(|it| it.ends_with('/') && path.starts_with(it))
                || others.contains(&path);
            assert!(is_route, "{path}");
        }
    }

    #[test]
    fn every_schema_and_every_field_is_described() {
        fn walk(place: &str, schema: &Value) {
            for (name, property) in schema["properties"].as_object().into_iter().flatten() {
                assert!(property["description"].is_string(), "{place}.{name}: {property}");
                walk(&format!("{place}.{name}"), property);
            }
        }
        let document = complete();
        let schemas = document["components"]["schemas"].as_object().unwrap();
        assert!(schemas.contains_key("Cluster") && schemas.contains_key("Track"));
        for (name, schema) in schemas {
            assert!(schema["description"].is_string(), "{name}: {schema}");
            walk(name, schema);
        }
    }
}
