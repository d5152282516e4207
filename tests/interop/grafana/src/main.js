// The page that checks and draws dashboards. Before it, the script input.js sets window.input: the dashboards by the names of their files,
// and the results of their queries (../panel_data.py).

import { check } from './checks.js';
import { draw } from './draw.js';
import { initialize } from './registries.js';

initialize();
window.check = () => check(window.input.dashboards, window.input.data);
window.draw = (name) => draw(name, window.input);
