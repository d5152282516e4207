// The links of fields, of panels and of dashboards.

import { dateTimeParse } from '@grafana/data';

/** Returns the links of all fields in all rows: as written, with the value of the field, and as a browser follows it. */
export function linksOf(shown) {
  const found = [];
  for (const field of shown.flatMap((frame) => frame.fields).filter((one) => one.config.links?.length)) {
    field.values.forEach((value, row) => {
      field.getLinks({ valueRowIndex: row }).forEach(({ title, href }, at) => {
        found.push({ written: field.config.links[at].url, title, href, value });
      });
    });
  }
  return found;
}

/** Returns the problems of a link. `dashboards` has all dashboards by their uid. */
export function wrongLink(link, dashboards) {
  if (!link.title || /\$/.test(link.title)) {
    return [`the title "${link.title}"`];
  }
  const url = new URL(link.href, 'http://grafana.invalid');
  const problems = [];
  if (/\$\{|\$[a-z_]|undefined|null/.test(decodeURIComponent(link.href).replaceAll('$__all', ''))) {
    problems.push('a variable is not replaced');
  }
  if (link.written.startsWith('/d/')) {
    problems.push(...wrongTarget(url, dashboards));
  } else if (!/^http:\/\/[^/]+:\d+\//.test(link.href)) {
    problems.push('no address with a port');
  }
  // The value that the link passes on must arrive unchanged.
  const parameter = /[?&]([\w-]+)=\$\{__value\.raw[^}]*\}/.exec(link.written)?.[1];
  if (parameter && url.searchParams.get(parameter) !== String(link.value)) {
    problems.push(`${parameter} is "${url.searchParams.get(parameter)}" instead of "${link.value}"`);
  }
  return problems.map((problem) => `${link.title}: ${problem}: ${link.href}`);
}

function wrongTarget(url, dashboards) {
  const target = dashboards[url.pathname.split('/')[2]];
  if (!target) {
    return ['there is no such dashboard'];
  }
  const names = target.templating.list.map((variable) => variable.name);
  const problems = [];
  for (const [name, value] of url.searchParams) {
    if (name === 'from' || name === 'to') {
      if (!dateTimeParse(/^\d+$/.test(value) ? Number(value) : value).isValid()) {
        problems.push(`${name} is no time`);
      }
    } else if (name !== 'timezone' && !name.startsWith('var-')) {
      problems.push(`the parameter ${name}`);
    } else if (name !== 'timezone' && !names.includes(name.slice('var-'.length))) {
      problems.push(`the dashboard has no variable ${name.slice('var-'.length)}`);
    }
  }
  return url.searchParams.has('from') && url.searchParams.has('to') ? problems : [...problems, 'no time range'];
}

/** Returns the problems of the links at the top of a dashboard, which must lead to all dashboards, and the number of their targets. */
export function wrongDashboardLinks(dashboard, dashboards) {
  const all = Object.values(dashboards);
  const targets = dashboard.links.map((link) => all.filter((other) => link.tags.every((tag) => other.tags.includes(tag))));
  const missing = targets.flatMap((found, at) =>
    all.filter((other) => !found.includes(other)).map((other) => `the link ${dashboard.links[at].title} does not lead to ${other.title}`)
  );
  return { problems: missing, checked: targets.flat().length };
}
