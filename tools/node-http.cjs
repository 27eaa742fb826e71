"use strict";
// node:http in the bundle. An `import` of a module of Node reads all its exports; one of http's loads
// undici, which is a tenth of the CPU time of a start and 4 MiB. `require` reads an export when it is used.
module.exports = require("http");
