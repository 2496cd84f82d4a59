// Crawls a site with Crawlee's CheerioCrawler as fast as it can: every page once, one JSON line per page.
//
// Stock settings except: requests in memory only, 64 requests in flight from the start, no log, no sessions, and one
// address for every host, because DNS does not know the names of the benchmark.

import { createHash } from 'node:crypto';
import { createWriteStream, readFileSync } from 'node:fs';
import { once } from 'node:events';
import { parseArgs } from 'node:util';

import { CheerioCrawler, Configuration, log } from '@crawlee/cheerio';

const text = { type: 'string' };
const { values: options } = parseArgs({
    options: { seeds: text, output: text, address: text, concurrency: { ...text, default: '64' } },
});
const seeds = readFileSync(options.seeds, 'utf8').split('\n').filter(Boolean);
const address = options.address.slice(0, options.address.lastIndexOf(':'));
const concurrency = Number(options.concurrency);
const output = createWriteStream(options.output, { highWaterMark: 1 << 20 });
log.setLevel(log.LEVELS.ERROR);

// The fields of Gossamer's page record, so that all crawlers write the same. A value that Crawlee does not know is
// written as it would be for every page here.
function record(request, response, body, contentType) {
    const { phases } = response.timings ?? { phases: {} };
    return {
        type: 'page',
        appid: 'bench',
        crawlid: 'crawlee',
        spiderid: 'link',
        request_id: createHash('md5').update(request.url).digest('hex'),
        attempt: request.retryCount,
        depth: request.crawlDepth ?? 0,
        url: request.url,
        response_url: request.loadedUrl,
        status_code: response.statusCode,
        status_msg: response.statusMessage,
        response_headers: lists(response.headers),
        request_headers: lists(request.headers ?? {}),
        body,
        body_encoding: 'text',
        encoding: contentType.encoding,
        content_type: response.headers['content-type'] ?? '',
        links: [],
        attrs: null,
        timestamp: new Date().toISOString(),
        success: true,
        reason: '',
        exception: '',
        redirects: [],
        timings: {
            dns: 0,
            connect: (phases.tcp ?? 0) / 1000,
            tls: (phases.tls ?? 0) / 1000,
            first_byte: (phases.firstByte ?? 0) / 1000,
            total: (phases.total ?? 0) / 1000,
        },
        ip: response.ip ?? '',
        truncated: false,
    };
}

function lists(headers) {
    return Object.fromEntries(Object.entries(headers).map(([name, value]) => [name, [value].flat()]));
}

const crawler = new CheerioCrawler(
    {
        minConcurrency: concurrency,
        maxConcurrency: concurrency,
        useSessionPool: false,
        preNavigationHooks: [
            (_, gotOptions) => {
                gotOptions.dnsLookup = (host, lookup, callback) =>
                    lookup.all ? callback(null, [{ address, family: 4 }]) : callback(null, address, 4);
            },
        ],
        async requestHandler({ request, response, body, contentType, enqueueLinks }) {
            await enqueueLinks({ strategy: 'all' });
            if (!output.write(`${JSON.stringify(record(request, response, String(body), contentType))}\n`)) {
                await once(output, 'drain');
            }
        },
    },
    new Configuration({ persistStorage: false }),
);
await crawler.run(seeds);
output.end();
await once(output, 'finish');
