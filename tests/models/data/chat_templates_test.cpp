// Which chat templates are known, and where a folder has its own.

#include "spool/models/data/chats/chat_templates.h"

#include <gtest/gtest.h>

#include <set>

#include "spool/models/data/sha256.h"
#include "tests/runtime/temporary_directory.h"
#include "tests/runtime/testing.h"

namespace spool::testing {
namespace {

// The template of docs/files.md, with a text inserted.
std::string chatml(const std::string& text) {
  return "{% for message in messages %}" + text +
         "<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n"
         "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";
}

TEST(ChatTemplates, AreKnownByTheirText) {
  const KnownTemplate* known = find_known_template(chatml(""));
  ASSERT_TRUE(known);
  EXPECT_EQ(known->format, "chatml");
  EXPECT_FALSE(known->begins);
  const KnownTemplate* begins = find_known_template("{{ bos_token }}" + chatml(""));
  ASSERT_TRUE(begins);
  EXPECT_TRUE(begins->begins);
  // One word more, or another, makes another template, whatever tokens it has.
  for (const std::string& other :
       {std::string(), std::string("{{ '<|im_start|>' + role }}"), chatml(" "), chatml("{{ x }}"),
        chatml("") + "<|im_end|>", "\n" + chatml(""), "{{ eos_token }}" + chatml(""),
        std::string("<|start_header_id|>"), std::string("'<|user|>' '<|assistant|>'")}) {
    EXPECT_FALSE(find_known_template(other)) << other;
  }
}

TEST(ChatTemplates, AreKnownHoweverTheirTagsAreLaidOut) {
  for (const std::string& same :
       {chatml("") + "\n", chatml("\n"), chatml("{# a comment #}\n"),
        chatml("\n   {#- more -#}\n\n"), "  " + chatml(""),
        "\t{%- for message  in\nmessages -%}\n\n" + chatml("").substr(29)}) {
    EXPECT_TRUE(find_known_template(same)) << same;
  }
  std::string spaced = chatml("");
  for (const char* tag : {"{%", "{{"}) {
    for (size_t at = spaced.find(tag); at != spaced.npos; at = spaced.find(tag, at + 1)) {
      spaced.insert(at + 2, " \n\t");
    }
  }
  EXPECT_TRUE(find_known_template(spaced)) << spaced;
  EXPECT_EQ(normal_form("{{ 'a\\n' }}"), normal_form("{{'a\n'}}"));
}

TEST(ChatTemplates, KeepWhatJinjaKeeps) {
  struct Case {
    const char *text, *form;
  };
  for (const auto& [text, form] : {
           Case{"a {% if x %}\n\n b", "a {%ifx%}\n b"},
           {" \t{% if x %} \n{{ y }}\n", "{%ifx%} \n{{y}}"},
           {"\n  {% if x %}", "\n{%ifx%}"},
           {"{{ x }}  {% y %}", "{{x}}  {%y%}"},
           {"{{ x -}}\n  {% y %}", "{{x}}{%y%}"},
           {"a\n {%+ if x +%}\nb", "a\n {%ifx%}\nb"},
           {"a \n {{- x }}\n", "a{{x}}"},
           {"a \n {{ x }}\n\n", "a \n {{x}}\n"},
           {"a {#- c #}\nb{# {{ #} c", "ab c"},
           {"{% set a = {'b': {'c d': 1}} %}x", "{%seta={'b':{'c d':1}}%}x"},
           {"{{ '%} }} \\' \\n' + \" ' \" }}", "{{'%} }} \\' \n'+\" ' \"}}"},
           {"a\r\nb\rc", "a\nb\nc"},
           {"{ x } {", "{ x } {"},
           {"{{ x", "{{x"},
           {"{# x", ""},
           {"{{ 'x\\", "{{'x\\"},
       }) {
    EXPECT_EQ(normal_form(text), form) << text;
  }
}

TEST(ChatTemplates, AreListedOnceAndWhole) {
  std::set<std::string_view> hashes;
  for (const KnownTemplate& row : known_templates()) {
    EXPECT_TRUE(hashes.insert(row.sha256).second) << row.source;
    EXPECT_EQ(row.sha256.size(), sha256("").size()) << row.source;
    EXPECT_TRUE(parse_chat_format(row.format)) << row.source;
    EXPECT_EQ(row.sha256.find_first_not_of("0123456789abcdef"), row.sha256.npos) << row.source;
  }
}

TEST(ChatTemplates, AreReadFromAFolder) {
  const TemporaryDirectory d;
  EXPECT_EQ(chat_template_in(d.path()), std::nullopt);
  d.file("tokenizer_config.json", R"({"bos_token": null})");
  EXPECT_EQ(chat_template_in(d.path()), std::nullopt);
  d.file("tokenizer_config.json", R"({"chat_template": "one"})");
  EXPECT_EQ(chat_template_in(d.path()), "one");
  d.file("tokenizer_config.json", R"({"chat_template": [{"name": "tools", "template": "two"},
                                                        {"name": "default", "template": "three"}]})");
  EXPECT_EQ(chat_template_in(d.path()), "three");
  for (const char* wrong : {R"({"chat_template": 7})", R"({"chat_template": [7]})",
                            R"({"chat_template": [{"name": "default"}]})", "{", "[]"}) {
    d.file("tokenizer_config.json", wrong);
    expect_error(ErrorKind::file, {"tokenizer_config.json"}, [&] { chat_template_in(d.path()); });
  }
  d.file("chat_template.jinja", "four");
  EXPECT_EQ(chat_template_in(d.path()), "four");
}

TEST(ChatTemplates, MayBeAbsentInEveryWay) {
  const TemporaryDirectory d;
  for (const char* none : {R"({"chat_template": null})", R"({"chat_template": []})",
                           R"({"chat_template": [{"name": "tools", "template": "x"}]})",
                           R"({"chat_template": {}})", R"({"chat_template": {"tools": "x"}})"}) {
    d.file("tokenizer_config.json", none);
    EXPECT_EQ(chat_template_in(d.path()), std::nullopt) << none;
  }
  d.file("chat_template.json", R"({"chat_template": "five"})");
  EXPECT_EQ(chat_template_in(d.path()), "five");
  d.file("tokenizer_config.json", R"({"chat_template": {"tools": "x", "default": "six"}})");
  EXPECT_EQ(chat_template_in(d.path()), "six");
}

}  // namespace
}  // namespace spool::testing
