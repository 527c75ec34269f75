// Stands in for @vscode/native-watchdog, which would have to be compiled. An extension host also looks
// every second, in JavaScript, whether its parent lives; only a host that is stuck in a loop misses that.
'use strict';

exports.start = () => {};
exports.exit = code => process.exit(code || 0);
