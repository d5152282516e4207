// build.mjs DIRECTORY: writes the page with all packages into a directory, as index.html and bundle.js.

import { writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';

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
  plugins: [absent, extension, router],
});
writeFileSync(
  `${directory}/index.html`,
  '<!doctype html><meta charset="utf-8"><title>Dashboards</title><body><script src="input.js"></script><script src="bundle.js"></script>\n'
);
