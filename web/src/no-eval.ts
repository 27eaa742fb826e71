/**
 * Zod tries out whether it may compile code, which the page's Content-Security-Policy refuses and
 * reports. Import this file before any file that imports zod.
 */
import { z } from "zod";

z.config({ jitless: true });
