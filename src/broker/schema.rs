//! Tool schemas may refer to themselves and to nothing else, so that nobody downstream fetches a URL a
//! guest chose. References are looked for where a schema can stand, not in data such as `enum` or `default`.

use serde_json::{Map, Value};

/// Keywords whose text is a reference or a base for references.
const REFERENCES: [&str; 5] = ["$ref", "$dynamicRef", "$recursiveRef", "$id", "$schema"];

/// What stands under a keyword.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Holds {
    /// A reference, which must be local.
    Reference,
    /// A map whose keys are references.
    Vocabulary,
    /// A map from names to schemas.
    Map,
    /// One schema, or an array of them in older drafts.
    SchemaOrList,
    /// An array of schemas.
    List,
    /// A map from names to lists of names or to schemas.
    Dependencies,
    /// Nothing that is read as a schema.
    Data,
}

fn holds(keyword: &str) -> Holds {
    match keyword {
        _ if REFERENCES.contains(&keyword) => Holds::Reference,
        "$vocabulary" => Holds::Vocabulary,
        "properties" | "patternProperties" | "$defs" | "definitions" | "dependentSchemas" => {
            Holds::Map
        }
        "items"
        | "contains"
        | "additionalProperties"
        | "unevaluatedProperties"
        | "unevaluatedItems"
        | "propertyNames"
        | "not"
        | "if"
        | "then"
        | "else"
        | "contentSchema"
        | "additionalItems" => Holds::SchemaOrList,
        "allOf" | "anyOf" | "oneOf" | "prefixItems" => Holds::List,
        "dependencies" => Holds::Dependencies,
        _ => Holds::Data,
    }
}

/// The keyword at fault in a schema that is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SchemaFault(pub String);

/// Checks that `schema` has only local references, and schemas where schemas must stand.
pub(crate) fn check(schema: &Map<String, Value>) -> Result<(), SchemaFault> {
    // A list of what is still to be looked at instead of recursion: depth costs heap, not stack.
    let mut open = vec![schema];
    while let Some(schema) = open.pop() {
        for (keyword, value) in schema {
            check_keyword(keyword, value, &mut open).ok_or_else(|| SchemaFault(keyword.clone()))?;
        }
    }
    Ok(())
}

fn check_keyword<'a>(
    keyword: &str,
    value: &'a Value,
    open: &mut Vec<&'a Map<String, Value>>,
) -> Option<()> {
    match holds(keyword) {
        Holds::Reference => value.as_str()?.starts_with('#').then_some(()),
        Holds::Vocabulary => {
            value.as_object()?.keys().all(|key| key.starts_with('#')).then_some(())
        }
        Holds::Map => value.as_object()?.values().try_for_each(|value| schema(value, open)),
        Holds::List => value.as_array()?.iter().try_for_each(|value| schema(value, open)),
        Holds::SchemaOrList => match value {
            Value::Array(list) => list.iter().try_for_each(|value| schema(value, open)),
            value => schema(value, open),
        },
        Holds::Dependencies => value.as_object()?.values().try_for_each(|value| match value {
            Value::Array(names) => names.iter().all(Value::is_string).then_some(()),
            value => schema(value, open),
        }),
        Holds::Data => Some(()),
    }
}

fn schema<'a>(value: &'a Value, open: &mut Vec<&'a Map<String, Value>>) -> Option<()> {
    match value {
        Value::Object(map) => open.push(map),
        Value::Bool(_) => {}
        _ => return None,
    }
    Some(())
}

/// Takes from a server's schema what real servers write and no validator here needs: `$schema`, and an
/// `$id` that is not local, wherever a schema stands.
pub(crate) fn strip_remote_names(schema: &mut Map<String, Value>) {
    let mut open = vec![schema];
    while let Some(schema) = open.pop() {
        schema.shift_remove("$schema");
        if schema.get("$id").is_some_and(|id| !id.as_str().is_some_and(|id| id.starts_with('#'))) {
            schema.shift_remove("$id");
        }
        for (keyword, value) in schema.iter_mut() {
            let inner: Vec<&mut Value> = match (holds(keyword), value) {
                (Holds::Map | Holds::Dependencies, Value::Object(map)) => {
                    map.values_mut().collect()
                }
                (Holds::SchemaOrList | Holds::List, Value::Array(list)) => {
                    list.iter_mut().collect()
                }
                (Holds::SchemaOrList, value) => vec![value],
                _ => Vec::new(),
            };
            open.extend(inner.into_iter().filter_map(Value::as_object_mut));
        }
    }
}
