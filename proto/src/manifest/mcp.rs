//! What `$result` means for an MCP call. Knows the shape of a tool result and nothing else of the protocol.
use serde_json::Value;

use crate::canonical::Canonical;

/// The value that references into an MCP tool result see: `structuredContent` when it is there, else the one text
/// block that is JSON, else nothing (then no reference resolves and the step is unrecoverable, rather than guessed).
///
/// `wrapped_output_schema`: the tool's output schema is a wrapper that its server generated around a value that is no
/// object; then a lone `{"result": X}` is X. Text blocks are read as strict JSON, because a text with a key twice
/// means different things to different readers; two blocks of JSON are ambiguous and give nothing.
pub fn mcp_result_value(result_json: &Value, wrapped_output_schema: bool) -> Option<Value> {
    match result_json.get("structuredContent") {
        None | Some(Value::Null) => one_json_text(result_json),
        Some(Value::Object(map)) if wrapped_output_schema && map.len() == 1 && map.contains_key("result") => {
            map.get("result").cloned()
        }
        Some(structured) => Some(structured.clone()),
    }
}

fn one_json_text(result_json: &Value) -> Option<Value> {
    let blocks = result_json.get("content")?.as_array()?;
    let texts = blocks.iter().filter(|block| block.get("type").and_then(Value::as_str) == Some("text"));
    let texts = texts.filter_map(|block| block.get("text").and_then(Value::as_str));
    let mut values = texts.filter_map(|text| Canonical::parse(text.as_bytes()).ok());
    let first = values.next()?;
    if values.next().is_some() { None } else { Some(first.value()) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn structured_content_wins() {
        let result = json!({"content": [{"type": "text", "text": "{\"id\":2}"}], "structuredContent": {"id": 1}});
        assert_eq!(mcp_result_value(&result, false), Some(json!({"id": 1})));
        assert_eq!(mcp_result_value(&result, true), Some(json!({"id": 1})));
    }

    #[test]
    fn a_wrapper_is_taken_off_only_where_it_is_one() {
        let wrapped = json!({"structuredContent": {"result": ["a"]}});
        assert_eq!(mcp_result_value(&wrapped, true), Some(json!(["a"])));
        assert_eq!(mcp_result_value(&wrapped, false), Some(json!({"result": ["a"]})));
        let more = json!({"structuredContent": {"result": 1, "id": 2}});
        assert_eq!(mcp_result_value(&more, true), Some(json!({"result": 1, "id": 2})));
    }

    #[test]
    fn one_text_block_of_json_or_nothing() {
        let of = |texts: &[&str]| {
            let blocks: Vec<Value> = texts.iter().map(|text| json!({"type": "text", "text": text})).collect();
            mcp_result_value(&json!({"content": blocks}), false)
        };
        assert_eq!(of(&["{\"id\":1}"]), Some(json!({"id": 1})));
        assert_eq!(of(&["done:", "{\"id\":1}"]), Some(json!({"id": 1})));
        assert_eq!(of(&["done"]), None);
        assert_eq!(of(&["{\"id\":1}", "{\"id\":2}"]), None);
        assert_eq!(of(&[]), None);
        let image = json!({"content": [{"type": "image", "data": "{}"}], "structuredContent": null});
        assert_eq!(mcp_result_value(&image, false), None);
        assert_eq!(mcp_result_value(&json!("text"), false), None);
    }
}
