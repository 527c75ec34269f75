// Stands in for @vscode/spdlog, which would have to be compiled: the part of it that VS Code calls.
'use strict';

const fs = require('node:fs');
const path = require('node:path');

const LEVELS = ['trace', 'debug', 'info', 'warning', 'error', 'critical', 'off'];
const INFO = LEVELS.indexOf('info');

/** A log file; one that has grown to `size` bytes becomes NAME.1.EXT, that one NAME.2.EXT, and so on. */
class Logger {
	constructor(kind, name, file, size, files) {
		Object.assign(this, { file, size, files, level: INFO, formatted: true });
		this.open();
	}

	open() {
		this.descriptor = fs.openSync(this.file, 'a', 0o600);
		this.written = fs.fstatSync(this.descriptor).size;
	}

	rotate() {
		fs.closeSync(this.descriptor);
		const { dir, name, ext } = path.parse(this.file);
		const numbered = number => path.join(dir, number ? `${name}.${number}${ext}` : `${name}${ext}`);
		for (let number = this.files - 1; number > 0; number--) {
			if (fs.existsSync(numbered(number - 1))) {
				fs.renameSync(numbered(number - 1), numbered(number));
			}
		}
		this.open();
	}

	write(level, message) {
		if (level < this.level || this.descriptor === undefined) {
			return;
		}
		const line = Buffer.from(this.formatted ? `${now()} [${LEVELS[level]}] ${message}\n` : message);
		if (this.files > 1 && this.written > 0 && this.written + line.length > this.size) {
			this.rotate();
		}
		try {
			this.written += fs.writeSync(this.descriptor, line);
		} catch {
			// A full disk must not end the program that logs.
		}
	}

	trace(message) { this.write(0, message); }
	debug(message) { this.write(1, message); }
	info(message) { this.write(2, message); }
	warn(message) { this.write(3, message); }
	error(message) { this.write(4, message); }
	critical(message) { this.write(5, message); }

	getLevel() { return this.level; }
	setLevel(level) { this.level = level; }
	// VS Code sets one pattern only, that of `now` and `write`.
	setPattern() { this.formatted = true; }
	clearFormatters() { this.formatted = false; }
	flush() {}

	drop() {
		if (this.descriptor !== undefined) {
			fs.closeSync(this.descriptor);
			this.descriptor = undefined;
		}
	}
}

/** Local time, as 2026-01-31 09:05:07.042. */
function now() {
	const time = new Date();
	return new Date(time - time.getTimezoneOffset() * 60000).toISOString().slice(0, -1).replace('T', ' ');
}

async function createLogger(name, file, size, files) {
	await fs.promises.mkdir(path.dirname(file), { recursive: true });
	return new Logger('rotating', name, file, size, files);
}

exports.version = 0;
exports.Logger = Logger;
exports.createRotatingLogger = createLogger;
exports.createAsyncRotatingLogger = createLogger;
exports.setLevel = () => {};
exports.setFlushOn = () => {};
