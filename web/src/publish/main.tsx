import { render } from 'preact';
import { streamOf } from './model';
import { Publication } from './publication';
import { NoStream, Publish } from './view';

const app = document.getElementById('app');
const stream = streamOf(location.pathname);
if (app && stream === null) render(<NoStream />, app);
if (app && stream !== null) {
  // The query may have credentials.
  const publication = new Publication(`/${stream}/whip${location.search}`);
  render(<Publish stream={stream} publication={publication} />, app);
  void publication.begin();
}
