// What every character of a %%dpsql cell is: comment, string, number, variable, keyword, call, named, operator or plain.

const OURS = /^\s*%%dpsql\b/;
const LONGEST = 100000; // characters: a longer cell keeps Python's colours

// @words: written by make_words.py
const KEYWORDS = new Set(["ACCOUNTANTS", "ALL", "AND", "ANY", "AS", "ASC", "BETWEEN", "BUDGET", "BY", "CASE", "CAST", "CLOSE", "CREATE", "CROSS", "CUBE", "DECLARE", "DESC", "DESCRIBE", "DIFFERENTIAL_PRIVACY", "DISTINCT", "DP", "DROP", "ELSE", "END", "EXCEPT", "EXISTS", "EXPLAIN", "FALSE", "FILTER", "FROM", "FULL", "GROUP", "GROUPING", "GROUPS", "HAVING", "IF", "IN", "INNER", "INTERSECT", "INTERVAL", "IS", "JOIN", "LEDGER", "LEFT", "LIKE", "LIMIT", "NATURAL", "NOT", "NULL", "OFFSET", "ON", "OPTIONS", "OR", "ORDER", "OUTER", "OVER", "PARTITION", "POLICY", "PTR", "QUALIFY", "RECURSIVE", "REFRESH", "RELEASE", "RELEASES", "REPLACE", "RESET", "RIGHT", "ROLLUP", "ROWS", "SELECT", "SET", "SETS", "SHOW", "SPENT", "STABLE", "SUBSAMPLE", "SUMMARIZE", "SYNTHETIC", "TABLE", "TABLES", "THEN", "TRADEOFF", "TRUE", "UNION", "USING", "VALUES", "WHEN", "WHERE", "WINDOW", "WITH"]);
const NAMED = new Set(["answer", "base", "blocks", "bounds", "budget_split", "candidates", "combine", "confidence", "consistent", "contribution_bounds_per_group", "contribution_bounds_per_row", "delta", "epsilon", "error", "gap", "group_selection_epsilon", "group_selection_strategy", "local_sensitivity", "max_groups_contributed", "max_hits", "max_rows_contributed", "max_rows_per_group", "max_unstable", "method", "min_privacy_units_per_group", "most", "mu", "noise", "passes", "periods", "privacy_unit_column", "refresh", "report_cut", "report_format", "rho", "rounds", "sampling", "strategy", "test", "threshold", "top", "trim", "units"]);
// @end

const TOKEN =
  /(--[^\n]*|\/\*[\s\S]*?(?:\*\/|$))|('(?:''|[^'])*(?:'|$))|("(?:""|[^"])*(?:"|$))|(\$[A-Za-z_]\w*)|((?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?)|([A-Za-z_]\w*)|(=>|<<|::|<=|>=|<>|!=|\|\||[-+*\/%<>=^&|~!@#?:])|(\s+)|([^\s\w])/giy;

/** Whether a cell is ours. */
export function isOurs(text) {
  return OURS.test(text);
}

/** [start, end, kind] of every token of a cell; nothing for a cell that is not ours. */
export function tokens(text) {
  if (text.length > LONGEST || !isOurs(text)) {
    return [];
  }
  const found = [];
  const end = text.indexOf('\n') < 0 ? text.length : text.indexOf('\n');
  const head = /^\s*(%%\w+)/.exec(text)[0].length;
  found.push([text.indexOf('%%'), head, 'keyword']);
  if (head < end) {
    found.push([head, end, 'plain']);
  }
  TOKEN.lastIndex = end;
  for (let m = TOKEN.exec(text); m; m = TOKEN.exec(text)) {
    const [whole, comment, string, name, variable, number, word, operator] = m;
    const after = text.slice(TOKEN.lastIndex, TOKEN.lastIndex + 20);
    const kind = comment ? 'comment' : string ? 'string' : name ? 'plain' : variable ? 'variable' : number ? 'number'
      : operator ? 'operator' : !word ? 'plain'
      : NAMED.has(word.toLowerCase()) && /^\s*=/.test(after) ? 'named'
      : KEYWORDS.has(word.toUpperCase()) ? 'keyword'
      : /^\s*\(/.test(after) ? 'call' : 'plain';
    if (whole.trim()) {
      found.push([m.index, m.index + whole.length, kind]);
    }
  }
  return found;
}
