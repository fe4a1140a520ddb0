import { render } from 'preact';
import { Nodes } from './view';

const app = document.getElementById('app');
if (app) render(<Nodes />, app);
