import { render } from 'preact';
import { Dashboard } from './view';

const app = document.getElementById('app');
if (app) render(<Dashboard />, app);
