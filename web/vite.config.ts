/**
 * How the page is built, and how it is served while it is changed: `npm run dev:web` serves it on
 * port 5173 and passes calls to the service on port 8000.
 */
import react from "@vitejs/plugin-react";
import { defineConfig } from "vite";

const SERVICE = "http://127.0.0.1:8000";

export default defineConfig({
  root: import.meta.dirname,
  plugins: [
    react(),
    {
      // Else a browser may draw the page before the script has set the theme of the reader.
      name: "draw-with-theme",
      transformIndexHtml: {
        order: "post",
        handler: (html) =>
          html.replace('<script type="module"', '<script type="module" blocking="render"'),
      },
    },
  ],
  build: {
    target: "es2023",
    // The policy of the page allows no `data:` but for images, and no inline script.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    reportCompressedSize: false,
  },
  server: {
    port: 5173,
    proxy: Object.fromEntries(
      ["/api", "/agui", "/openapi.json"].map((path) => [path, { target: SERVICE }]),
    ),
  },
});
