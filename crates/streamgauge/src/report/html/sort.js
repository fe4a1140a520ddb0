// Sorts a table by a column: a heading becomes a button. Rising, falling, and as it was.
const rising = (a, b) => {
  const [x, y] = [Number.parseFloat(a), Number.parseFloat(b)];
  const words = () => a.localeCompare(b, 'en', { numeric: true });
  return Number.isNaN(x) || Number.isNaN(y) ? words() : x - y || words();
};
const value = (row, column) => row.cells[column].dataset.value ?? '';

// A heading of rows stands at the first row of those that share it.
function mark(rows) {
  rows.forEach((row, index) => {
    let same = index > 0;
    const heads = [...row.querySelectorAll('th')];
    heads.forEach((head, level) => {
      same &&= level + 1 < heads.length && head.textContent === rows[index - 1].cells[level].textContent;
      head.classList.toggle('again', same);
    });
    row.classList.toggle('begins', index > 0 && heads.length > 1 && !heads[0].classList.contains('again'));
  });
}

for (const table of document.querySelectorAll('figure.table table')) {
  const body = table.tBodies[0];
  const before = [...body.rows];
  for (const heading of table.querySelectorAll('th[data-column]')) {
    const button = document.createElement('button');
    button.type = 'button';
    button.append(...heading.childNodes);
    heading.append(button);
    button.addEventListener('click', () => {
      const order = { ascending: 'descending', descending: null }[heading.ariaSort];
      for (const other of table.querySelectorAll('th[aria-sort]')) other.removeAttribute('aria-sort');
      const rows = [...before];
      if (order !== null) {
        const to = order ?? 'ascending';
        heading.ariaSort = to;
        const column = Number(heading.dataset.column);
        const sign = to === 'ascending' ? 1 : -1;
        rows.sort((a, b) => {
          const [x, y] = [value(a, column), value(b, column)];
          // Rows without a value come last in any order.
          if (x === '' || y === '') return Number(x === '') - Number(y === '');
          return sign * rising(x, y);
        });
      }
      body.append(...rows);
      mark(rows);
    });
  }
}
