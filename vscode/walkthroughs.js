/**
 * Makes the labs' walkthroughs, when the extension is packed: node walkthroughs.js LABS EXTENSION
 *
 * LABS has a folder for each lab, as in example/labs/. In EXTENSION, a copy of the sources,
 * package.json gets the walkthroughs, and beside it come their texts in both languages (VS Code's package.nls*.json).
 */
"use strict";

const fs = require("node:fs");
const path = require("node:path");

const PREFIX = "command:rayside.";
// VS Code's name of simplified Chinese; its English texts are those of package.nls.json.
const LANGUAGES = { en: { suffix: "", readme: "README.md" }, zh: { suffix: ".zh-cn", readme: "README.zh.md" } };
const WORDS = {
  en: {
    title: (number, title) => `Lab ${number}: ${title}`,
    run: "Run",
    check: "Check",
    reset: "Reset",
    exercise: "Check your exercise",
    picture: "the icon of Ray's view",
    solve: (link) => `Stuck? ${link("Put the solution into your copy")}; what you edited is kept aside.`,
    other: (english, chinese) => `中文: ${chinese("README.zh.md")}`,
    more: (english) => `Why this is so, and what to try next: ${english("README.md")}.`,
  },
  zh: {
    title: (number, title) => `实验 ${number}：${title}`,
    run: "运行",
    check: "检查",
    reset: "重置",
    exercise: "检查你的练习",
    picture: "Ray 视图的图标",
    solve: (link) => `卡住了？${link("把答案放进你的副本")}；你改过的文件会另外保存。`,
    other: (english) => `English: ${english("README.md")}`,
    more: (english, chinese) => `原理和后续练习：${chinese("README.zh.md")}。`,
  },
};
// Code, **bold**, *emphasis*, a link; what is between them is text.
const INLINE = /`([^`]+)`|\*\*([^*]+)\*\*|\*([^*\s][^*]*)\*|\[([^\]]+)\]\(([^)\s]+)\)/g;
const FENCE = /^```\w*\n(.*?)^```$/gms;
// Breaks no line, and is not seen.
const JOINER = "\u2060";
// These of a lab's files are not in the learner's copy.
const OWN = /^(lab\.py|README(\.zh)?\.md|solution\/.*)$/;

/** The labs in a folder: their names, targets, and texts in each language. */
function read(folder) {
  return fs
    .readdirSync(folder)
    .sort()
    .filter((name) => fs.existsSync(path.join(folder, name, "lab.py")))
    .map((name) => {
      const text = (file) => fs.readFileSync(path.join(folder, name, file), "utf8");
      const targets = /^TARGETS = \((.+)\)$/m.exec(text("lab.py"));
      if (!targets) throw new Error(`${name}/lab.py does not say its TARGETS in one line`);
      return {
        name,
        targets: targets[1].match(/\w+/g),
        files: files(path.join(folder, name)),
        texts: Object.fromEntries(Object.entries(LANGUAGES).map(([key, { readme }]) => [key, parse(text(readme))])),
      };
    });
}

/** The files of the learner's copy, below its folder. */
function files(folder) {
  const entries = fs.readdirSync(folder, { recursive: true, withFileTypes: true }).filter((entry) => entry.isFile());
  const names = entries.map((entry) => path.relative(folder, path.join(entry.parentPath ?? entry.path, entry.name)));
  return names.map((name) => name.split(path.sep).join("/")).filter((name) => !OWN.test(name));
}

/** The parts of a README that a walkthrough shows. Its sections have the same order in every language. */
function parse(readme) {
  const [head, ...sections] = readme.split(/^## .*$/m);
  const [goal, steps, seen] = sections.map((section) => section.trim());
  return {
    title: head.replace(/^# /, "").trim(),
    goal,
    seen,
    steps: steps
      .split(/^### /m)
      .slice(1)
      .map((part) => {
        const [title, ...lines] = part.split("\n");
        const text = lines.join("\n").trim();
        return { title: title.trim(), text, runs: /^```sh$/m.test(text) };
      }),
  };
}

/** The walkthrough of a lab with `%keys%` for texts, and these in each language. */
function walkthrough({ name, targets, files, texts }) {
  const commands = texts.en.steps.map((step) => step.runs);
  const ids = [...commands.map((runs, at) => `${runs ? "run" : "do"}-${at + 1}`), "check"];
  const step = (id) => ({
    id,
    title: `%${name}.${id}.title%`,
    description: `%${name}.${id}%`,
    // A picture, for other media are pages in frames. It shows nothing that the text does not say.
    media: { image: "media/lab.svg", altText: `%${name}.picture%` },
    // Without any event a click on *Run* or *Check* would be one. This one never comes: src/ticks.js ticks.
    completionEvents: ["onContext:rayside.never"],
  });
  return {
    contribution: {
      id: name,
      title: `%${name}.title%`,
      description: `%${name}.goal%`,
      when: targets.map((target) => `rayside.labs == '${target}'`).join(" || "),
      steps: ids.map(step),
    },
    texts: Object.fromEntries(Object.keys(LANGUAGES).map((key) => [key, written(name, files, texts[key], ids, WORDS[key])])),
  };
}

/** The texts of a lab's walkthrough in one language, by their keys. */
function written(name, files, { title, goal, steps, seen }, ids, words) {
  const link = (command, ...args) => (label) => {
    const query = encodeURIComponent(JSON.stringify([name, ...args]));
    // encodeURIComponent leaves these, which would end a link.
    return `[${label}](${PREFIX}${command}?${query.replace(/[()']/g, (sign) => `%${sign.charCodeAt(0).toString(16)}`)})`;
  };
  const linked = (code) => {
    const file = code.startsWith(`labs/${name}/`) ? code.slice(`labs/${name}/`.length) : code;
    return files.includes(file) ? link("openLabFile", file)(code) : "";
  };
  const lines = (text) => described(text, linked);
  const buttons = [link("checkLab")(words.check), link("resetLab")(words.reset)];
  const readmes = [link("openLabText", "en"), link("openLabText", "zh")];
  const all = {
    [`${name}.title`]: words.title(Number.parseInt(name, 10), plain(title)),
    [`${name}.goal`]: lines(goal).join("\n"),
    [`${name}.picture`]: words.picture,
    [`${name}.check.title`]: words.exercise,
    [`${name}.check`]: [
      ...lines(seen),
      ...buttons,
      words.solve(link("solveLab")),
      words.more(...readmes),
    ].join("\n"),
  };
  steps.forEach((step, at) => {
    const run = step.runs ? [link("runLabStep", at + 1)(words.run)] : [];
    all[`${name}.${ids[at]}.title`] = plain(step.title);
    const other = at ? [] : [words.other(...readmes)];
    all[`${name}.${ids[at]}`] = [...lines(step.text), ...other, ...run, ...buttons].join("\n");
  });
  return all;
}

/**
 * Markdown as a walkthrough has it, paragraph by paragraph: VS Code draws each line as one. `linked` returns the link
 * for a piece of code, "" where it is none.
 */
function described(markdown, linked) {
  const lines = [];
  let end = 0;
  for (const fence of markdown.matchAll(FENCE)) {
    lines.push(...paragraphs(markdown.slice(end, fence.index), linked));
    lines.push(...fence[1].split("\n").filter((line) => line.trim()).map(code));
    end = fence.index + fence[0].length;
  }
  return [...lines, ...paragraphs(markdown.slice(end), linked)];
}

function paragraphs(markdown, linked) {
  return markdown
    .split(/\n\s*\n|\n(?=- |\d+\. |\|)/)
    .map((text) => text.trim().replace(/\s*\n\s*/g, (space, at, whole) => (/[\u3000-\uffef]/.test(whole[at - 1]) ? "" : " ")))
    .filter(Boolean)
    .map((text) => inline(text.replace(/^- /, "• "), linked));
}

function inline(text, linked) {
  let end = 0;
  let drawn = "";
  for (const found of text.matchAll(INLINE)) {
    drawn += plain(text.slice(end, found.index));
    const [whole, typed, bold, emphasis, label, address] = found;
    if (typed !== undefined) drawn += linked(typed) || code(typed);
    else if (bold !== undefined) drawn += `**${plain(bold)}**`;
    else if (emphasis !== undefined) drawn += `__${plain(emphasis)}__`;
    else drawn += address.startsWith("https://") ? whole : plain(label);
    end = found.index + whole.length;
  }
  return drawn + plain(text.slice(end));
}

const code = (text) => `\`\`${plain(text.replace(/^ +/, (spaces) => "\u00a0".repeat(spaces.length)))}\`\``;

/** Text in which VS Code finds no format, no link and no icon. */
function plain(text) {
  return text
    // Two signs are a format, and a backslash before a sign is dropped.
    .replace(/(?<=\\)[*_`[\]]|[*_`[\]](?=[*_`[\]])|[*_`[\]]$/g, "\\$&")
    .replaceAll("](", `]${JOINER}(`)
    .replaceAll("$(", `$${JOINER}(`);
}

function main(labs, extension) {
  const file = path.join(extension, "package.json");
  const manifest = JSON.parse(fs.readFileSync(file, "utf8"));
  const all = read(labs).map(walkthrough);
  manifest.contributes.walkthroughs = all.map(({ contribution }) => contribution);
  const write = (name, document) => fs.writeFileSync(path.join(extension, name), `${JSON.stringify(document, null, 2)}\n`);
  write("package.json", manifest);
  for (const [key, { suffix }] of Object.entries(LANGUAGES)) {
    write(`package.nls${suffix}.json`, Object.assign({}, ...all.map(({ texts }) => texts[key])));
  }
}

main(...process.argv.slice(2));
