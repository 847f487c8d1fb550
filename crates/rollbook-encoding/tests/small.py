"""Makes the small tokenizer and template in `small/`, and with transformers what they give: `expected.json`.

    pip install transformers tokenizers jinja2
    python small.py [FOLDER WITH tokenizers/qwen3 AND calculator-run]

With the folder it also writes what Qwen3's and SmolLM2's files give on conversations of ours; those files are not part of
the repository.
"""

import hashlib
import json
import pathlib
import sys

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

HERE = pathlib.Path(__file__).parent
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<think>", "</think>"]
TEXT = (
    "system\nuser\nassistant\ntool\nYou are a helpful assistant. hello hello the answer is 42, the weather is cold and the "
    "world is round. the tool says hello."
)
TEMPLATE = """{%- if tools %}
{{- '<|im_start|>system\\n' + (tools | tojson) + '<|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
    {%- if message.role == 'assistant' and not loop.last and message.content and '</think>' in message.content %}
{{- '<|im_start|>assistant\\n' + message.content.split('</think>')[-1].lstrip('\\n') + '<|im_end|>\\n' }}
    {%- else %}
{{- '<|im_start|>' + message.role + '\\n' + (message.content or '') }}
        {%- for call in message.tool_calls or [] %}
{{- '<tool>' + call.function.name + ' ' }}
            {%- if call.function.arguments is string %}{{- call.function.arguments }}{% else %}{{- call.function.arguments | tojson }}{% endif %}
        {%- endfor %}
{{- '<|im_end|>\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
{{- '<|im_start|>assistant\\n' }}
{%- endif %}
"""


def small():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=256 + len(SPECIAL) + 40,
        special_tokens=SPECIAL[:3],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator([TEXT], trainer)
    tokenizer.add_tokens([AddedToken(token, special=False, normalized=False) for token in SPECIAL[3:]])
    folder = HERE / "small"
    text = json.dumps(json.loads(tokenizer.to_str()), ensure_ascii=False, separators=(",", ":"))
    (folder / "tokenizer.json").write_text(text + "\n")
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    return folder


CONVERSATIONS = [
    {"messages": [{"role": "user", "content": "hello"}]},
    {"messages": [{"role": "system", "content": "be  kind "}, {"role": "user", "content": "é 😀 \\ \"q\"\n"}]},
    {"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "<think>\nwhy\n</think>\n\nb"},
                  {"role": "user", "content": "c"}]},
    {"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "<think>x</think>b"}],
     "add_generation_prompt": False},
    {"messages": [{"role": "user", "content": "weather?"},
                  {"role": "assistant", "content": "", "tool_calls": [
                      {"id": "t", "type": "function", "function": {"name": "get", "arguments": {"city": "Zürich", "n": [1, 2.5, None, True]}}}]},
                  {"role": "tool", "content": "cold", "tool_call_id": "t"},
                  {"role": "tool", "content": "dry"}],
     "tools": [{"type": "function", "function": {"name": "get", "description": "it's <b>", "parameters": {"type": "object", "properties": {}}}}]},
    {"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "The answer is"}],
     "continue_final_message": True, "add_generation_prompt": False},
    {"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b", "reasoning_content": "why"},
                  {"role": "user", "content": "c"}, {"role": "assistant", "content": None, "tool_calls": [
                      {"function": {"name": "f", "arguments": "{\"x\":1}"}}]},
                  {"role": "tool", "content": "1"}],
     "chat_template_kwargs": {"enable_thinking": False}},
]

# What a template can print and do, one at a time.
SNIPPETS = [
    "{{ messages[0].content | trim }}|{{ none }}|{{ true }}|{{ false }}|{{ undefined_name }}|",
    "{{ [1, 'a', none, true, {'k': \"it's\"}] }}",
    "{{ messages[0] }}",
    "{% for m in messages %}\n  {{ m.role }}\n{% endfor %}\nend\n",
    "{%- for m in messages -%} {{ m.content }} {%- endfor -%} x",
    "{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{% endfor %}{{ ns.n }}",
    "{% generation %}\nab\n{% endgeneration %}\nc",
    "{{ messages | tojson }}",
    "{{ messages[0] | tojson(indent=2) }}",
    "{{ messages | map(attribute='role') | join(',') }}",
    "{{ messages | selectattr('role', 'equalto', 'user') | list | length }}",
    "{{ messages[::-1][0].role }} {{ messages[-1]['content'][1:3] }}",
    "{{ 'a,b,c'.split(',') }} {{ 'a b'.title() }} {{ 'xay'.strip('xy') }} {{ 'ab'.upper() }}",
    "{{ 'a' ~ 1 }}",
    "{{ bos_token }}{{ messages[0]['content'] }}{{ eos_token }}",
    "{% if tools is defined and tools is not none %}T{% else %}-{% endif %}{{ tools is none }}",
    "{% macro f(x) %}<{{ x }}>{% endmacro %}{{ f(messages[0].role) }}",
    "{% for m in messages %}{% if loop.first %}{% continue %}{% endif %}{{ m.role }}{% break %}{% endfor %}",
    "{% for key, value in {'b': 1, 'a': 2}.items() %}{{ key }}={{ value }} {% endfor %}",
    "{{ messages[0].get('name', 'none given') }}",
    "{{ 7 // 2 }} {{ 7 / 2 }} {{ 2 ** 3 }} {{ 7 % 4 }}",
    "{{ 1.0 }} {{ 0.1 }} {{ '%s-%d' | format('a', 3) }}",
]


def rendered(tokenizer, request):
    arguments = {key: request[key] for key in ("tools", "continue_final_message") if key in request}
    arguments.update(request.get("chat_template_kwargs", {}))
    generation = request.get("add_generation_prompt", True)
    try:
        text = tokenizer.apply_chat_template(request["messages"], tokenize=False, add_generation_prompt=generation, **arguments)
    except Exception as error:  # what a template cannot render is part of what is expected
        return {"error": type(error).__name__}
    return {"text": text, "ids": tokenizer.encode(text, add_special_tokens=False)}


def load(folder, template=None):
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"), bos_token="<|endoftext|>", eos_token="<|im_end|>")
    tokenizer.chat_template = template or (folder / "chat_template.jinja").read_text()
    return tokenizer


def digest(path):
    return "sha256:" + hashlib.sha256(path.read_bytes()).hexdigest()


def main():
    folder = small()
    tokenizer = load(folder)
    expected = {
        "tokenizer_digest": digest(folder / "tokenizer.json"),
        "chat_template_digest": digest(folder / "chat_template.jinja"),
        "small": [{"request": request, **rendered(tokenizer, request)} for request in CONVERSATIONS],
        "snippets": [
            {"template": snippet, "request": request, **rendered(load(folder, snippet), request)}
            for snippet in SNIPPETS
            for request in (CONVERSATIONS[1], CONVERSATIONS[4])
        ],
    }
    emoji = tokenizer.encode("😀", add_special_tokens=False)
    decoded = [[1, 300, 2], emoji, emoji[:2], emoji[1:3] + tokenizer.encode("ab", add_special_tokens=False), [99999, 1, 70], []]
    decoded.append(tokenizer.encode("<|im_start|>hello<|im_end|>", add_special_tokens=False))
    expected["decoded"] = [
        {"ids": ids, "all": tokenizer.decode(ids), "without_special": tokenizer.decode(ids, skip_special_tokens=True)}
        for ids in decoded
    ]
    if len(sys.argv) > 1:
        shared = pathlib.Path(sys.argv[1])
        for name, path in (("qwen3", shared / "tokenizers/qwen3"), ("smollm2", shared / "calculator-run")):
            other = load(path)
            expected[name] = [{"request": request, **rendered(other, request)} for request in CONVERSATIONS]
    (HERE / "expected.json").write_text(json.dumps(expected, ensure_ascii=False, indent=1) + "\n")


main()
