// build.mjs DIRECTORY: writes the page with all packages into a directory, as index.html and bundle.js.

import { cpSync, readFileSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname } from 'node:path';

// The packages are in the current directory, not next to this file.
const { build } = createRequire(`${process.cwd()}/`)('esbuild');
const directory = process.argv[2];

// Packages that package.json replaces, because no panel needs them.
const absent = {
  name: 'absent',
  setup({ onResolve, onLoad }) {
    onResolve({ filter: /^(ol|monaco-editor|@grafana\/faro-web-sdk)(\/|$)/ }, ({ path }) => ({ path, namespace: 'absent' }));
    onLoad({ filter: /.*/, namespace: 'absent' }, () => ({ contents: 'module.exports = {}' }));
  },
};

// Imports of @grafana/scenes without a file extension, for bundlers that try several.
const extension = {
  name: 'extension',
  setup({ onResolve, resolve }) {
    onResolve({ filter: /^@grafana\/schema\/dist\/.*\.gen$/ }, ({ path, kind, resolveDir }) => resolve(`${path}.js`, { kind, resolveDir }));
  },
};

// In files named *.mjs, the default export of a CommonJS module is all its exports, as in Node.js. The packages of Grafana expect the export
// named default. Another name of the file has this effect.
const interoperation = {
  name: 'interoperation',
  setup({ onLoad, onResolve, resolve }) {
    onResolve({ filter: /^(@grafana\/|\.)/ }, async ({ path, kind, importer, resolveDir, pluginData }) => {
      if (pluginData === 'resolved' || !(path.startsWith('@grafana/') || importer.includes('/node_modules/@grafana/'))) {
        return undefined;
      }
      const found = await resolve(path, { kind, importer, resolveDir, pluginData: 'resolved' });
      return found.path.endsWith('.mjs') ? { path: `${found.path}.js`, namespace: 'grafana', sideEffects: found.sideEffects } : found;
    });
    onLoad({ filter: /.*/, namespace: 'grafana' }, ({ path }) => ({
      contents: readFileSync(path.slice(0, -'.js'.length)),
      resolveDir: dirname(path),
    }));
  },
};

// @grafana/scenes needs version 6 of the router, @grafana/ui version 5. Grafana has both.
const router = {
  name: 'router',
  setup({ onResolve, resolve }) {
    onResolve({ filter: /^react-router-dom$/ }, ({ kind, importer, resolveDir }) =>
      importer.includes('@grafana/scenes') ? resolve('react-router-dom-v5-compat', { kind, resolveDir }) : undefined
    );
  },
};

await build({
  bundle: true,
  define: { 'process.env.NODE_ENV': '"production"', global: 'window' },
  entryPoints: [new URL('src/main.js', import.meta.url).pathname],
  jsx: 'automatic',
  loader: { '.js': 'jsx' },
  logLevel: 'error',
  mainFields: ['module', 'browser', 'main'],
  nodePaths: [`${process.cwd()}/node_modules`],
  outfile: `${directory}/bundle.js`,
  plugins: [absent, extension, router, interoperation],
});
writeFileSync(
  `${directory}/index.html`,
  '<!doctype html><meta charset="utf-8"><title>Dashboards</title><link rel="icon" href="data:,"><link rel="stylesheet" href="bundle.css"><body><script src="input.js"></script><script src="bundle.js"></script>\n'
);
// The icons and the font, at the places from which Grafana loads them.
cpSync(`${process.cwd()}/node_modules/@grafana/ui/dist/public`, `${directory}/public`, { recursive: true });
for (const [name, weight] of [['Regular', 400], ['Medium', 500]]) {
  cpSync(
    `${process.cwd()}/node_modules/@fontsource/inter/files/inter-latin-${weight}-normal.woff2`,
    `${directory}/public/fonts/inter/Inter-${name}.woff2`
  );
}
