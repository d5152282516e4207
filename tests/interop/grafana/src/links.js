// The links of fields, of panels and of dashboards.

import { dateTimeParse } from '@grafana/data';

/** Returns all links of a table's or graph's fields in real rows: (link as written, value, URL). */
export function linksOf(shown) {
  const found = [];
  for (const frame of shown) {
    for (const field of frame.fields.filter((one) => one.config.links?.length)) {
      const row = lastValue(field.values);
      field.getLinks({ valueRowIndex: row }).forEach((model, at) => {
        found.push({ written: field.config.links[at].url, title: model.title, href: model.href, value: field.values[row], frame, row });
      });
    }
  }
  return found;
}

function lastValue(values) {
  const at = values.findLastIndex((value) => value !== null && value !== '' && !Number.isNaN(value));
  return Math.max(at, 0);
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

/** Returns the problems of the links of a dashboard, and the number of their targets. */
export function wrongDashboardLinks(dashboard, dashboards) {
  const targets = dashboard.links.map((link) =>
    Object.values(dashboards).filter((other) => link.tags.every((tag) => other.tags.includes(tag)))
  );
  return {
    problems: targets.filter((found) => found.length < 2).map((_, at) => `the link ${dashboard.links[at].title} has no other dashboards`),
    checked: targets.flat().length,
  };
}
