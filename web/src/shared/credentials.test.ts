import { expect, it } from 'vitest';
import { credentialsOf, NO_CREDENTIALS } from './credentials';

const basic = (given: string) => `Basic ${Buffer.from(given).toString('base64')}`;

it.each([
  ['?key=a%26b', '?key=a%26b', basic(':a&b')],
  ['?via=push&key=a+b&x=1', '?key=a+b', basic(':a+b')],
  ['?key=1&key=2', '?key=1&key=2', basic(':1')],
  ['?user=alice&password=p%C3%A4ss=', '?user=alice&password=p%C3%A4ss=', basic('alice:päss=')],
  ['?user=alice&pass=x', '?user=alice&pass=x', basic('alice:x')],
  ['?user=alice', '?user=alice', basic('alice:')],
  ['?token=a.b-c_d', '?token=a.b-c_d', 'Bearer a.b-c_d'],
  ['?jwt=t&key=k', '?jwt=t&key=k', 'Bearer t'],
])('%s', (search, query, authorization) => {
  expect(credentialsOf(search)).toEqual({ query, headers: { authorization } });
});

it.each(['', '?', '?via=push', '?keys=1'])('%s has none', (search) => {
  expect(credentialsOf(search)).toEqual(NO_CREDENTIALS);
});

it('tells that no header carries a user name with a colon', () => {
  const search = '?user=a%3Ab&password=c:d';
  expect(credentialsOf(search)).toEqual({
    query: search,
    headers: {},
    flaw: expect.stringContaining('colon'),
  });
  expect(credentialsOf('?user=ab&password=c:d').flaw).toBeUndefined();
  expect(credentialsOf('?user=a:b&token=t')).toEqual({
    query: '?user=a:b&token=t',
    headers: { authorization: 'Bearer t' },
  });
});

it.each(['?key', '?key=', '?key=%ff', '?token=a%0d%0ab', '?token=%C3%A4'])('%s makes no header', (search) => {
  expect(credentialsOf(search).headers).toEqual({});
});
