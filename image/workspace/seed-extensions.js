// Gives a user the extensions of a folder that they can't write to: links, and an entry for each in the list
// of their own. What they installed themselves stays. Run before code-server starts, as
//
//     node seed-extensions.js SHARED OWN
'use strict';

const fs = require('node:fs');
const path = require('node:path');

const LIST = 'extensions.json';
const [shared, own] = process.argv.slice(2).map(folder => path.resolve(folder));

/** The entries of a folder's list; none where nothing readable is. */
function read(folder) {
	try {
		return JSON.parse(fs.readFileSync(path.join(folder, LIST), 'utf8'));
	} catch {
		return [];
	}
}

const folderOf = entry => entry.relativeLocation || path.basename(entry.location.path);
const nameOf = entry => entry.identifier.id.toLowerCase();

fs.mkdirSync(own, { recursive: true });
// Links are ours, perhaps of an earlier version.
for (const entry of fs.readdirSync(own, { withFileTypes: true })) {
	if (entry.isSymbolicLink()) {
		fs.unlinkSync(path.join(own, entry.name));
	}
}
const theirs = read(own).filter(entry => fs.existsSync(path.join(own, folderOf(entry))));
const names = new Set(theirs.map(nameOf));
const given = read(shared).filter(entry => !names.has(nameOf(entry)));
for (const entry of given) {
	const folder = folderOf(entry);
	fs.symlinkSync(path.join(shared, folder), path.join(own, folder));
	entry.relativeLocation = folder;
	entry.location = { $mid: 1, path: path.join(own, folder), scheme: 'file' };
}
const draft = path.join(own, `.${LIST}`);
fs.writeFileSync(draft, JSON.stringify([...theirs, ...given]), { mode: 0o600 });
fs.renameSync(draft, path.join(own, LIST));
