/**
 * The commands of a checkout, `npm run -s ledger -- COMMAND`: of the bundle while it is made from the
 * sources as they are, else of the sources. From those, Node takes the types off 440 files and resolves
 * a thousand modules for every command.
 */
import { isBundleCurrent, ROOT } from "./stamps.ts";

const main = (await isBundleCurrent(`${ROOT}dist`)) ? "dist/main.js" : "src/main.ts";
await import(new URL(`../${main}`, import.meta.url).href);
