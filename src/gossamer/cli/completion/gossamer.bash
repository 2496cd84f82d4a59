# Completion of gossamer. Made by `python -m tools.reference`; do not edit.

_gossamer_crawls() {  # names of the crawls of the data directory
    local folder=.gossamer i path
    for ((i = 1; i < COMP_CWORD; i++)); do
        [[ ${COMP_WORDS[i]} == --data-dir ]] && folder=${COMP_WORDS[i + 1]}
    done
    for path in "$folder"/crawls/*.json; do
        [[ -e $path ]] || continue
        path=${path##*/}
        printf '%s\n' "${path%.json}"
    done
}

_gossamer_files() {
    compopt -o filenames 2>/dev/null
    local IFS=$'\n'
    COMPREPLY=($(compgen -f -- "$1"))
}

_gossamer() {
    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]} command= i
    COMPREPLY=()
    if [[ $cur == = ]]; then
        cur=
    elif [[ $prev == = ]]; then
        prev=${COMP_WORDS[COMP_CWORD - 2]}
    fi
    for ((i = 1; i < COMP_CWORD; i++)); do
        [[ ${COMP_WORDS[i]} == -* ]] && continue
        if [[ -z $command ]]; then
            command=${COMP_WORDS[i]}
            case $command in new|crawls|domains|bench|schedules|versions|variables|tokens|migrate) ;; *) break ;; esac
        else
            command="$command ${COMP_WORDS[i]}"
            break
        fi
    done
    case "$command $prev" in
    'crawl --seeds'|'crawl --spider'|'crawl --extract'|'crawl -o'|'crawl --output'|'crawl --assets-to'|'crawl --report'|'crawl --ca-file'|'crawl --proxy'|'crawl --data-dir'|'crawl --config') _gossamer_files "$cur"; return ;;
    'crawl --depth'|'crawl --max-pages'|'crawl --domain-max-pages'|'crawl --drop-parameter'|'crawl --pattern-max-pages'|'crawl --path-repeats'|'crawl --allow-domain'|'crawl --allow'|'crawl --deny'|'crawl --deny-extension'|'crawl --priority'|'crawl --expires'|'crawl --rate'|'crawl --domain-concurrency'|'crawl --concurrency'|'crawl --processes'|'crawl --field'|'crawl --each'|'crawl --unique'|'crawl --assets'|'crawl --max-assets'|'crawl --assets-max-bytes'|'crawl --chunk'|'crawl --attrs'|'crawl --resolve'|'crawl --robots-patience'|'crawl --user-agent'|'crawl --contact'|'crawl --header'|'crawl --cookie'|'crawl --secret-header'|'crawl --headers-for'|'crawl --egress'|'crawl --timeout'|'crawl --retries'|'crawl --frontier') COMPREPLY=($(compgen -W '' -- "$cur")); return ;;
    'crawl --scope') COMPREPLY=($(compgen -W 'domain host path any' -- "$cur")); return ;;
    'crawl --query-order') COMPREPLY=($(compgen -W 'significant ignored' -- "$cur")); return ;;
    'crawl --text-in') COMPREPLY=($(compgen -W 'records items both' -- "$cur")); return ;;
    'crawl --crawl-id') COMPREPLY=($(compgen -W "$(_gossamer_crawls)" -- "$cur")); return ;;
    'export --format') COMPREPLY=($(compgen -W '' -- "$cur")); return ;;
    'fetch --scope') COMPREPLY=($(compgen -W 'domain host path any' -- "$cur")); return ;;
    'fetch --allow-domain'|'fetch --allow'|'fetch --deny'|'fetch --deny-extension'|'fetch --resolve'|'fetch --user-agent'|'fetch --contact'|'fetch --header'|'fetch --cookie'|'fetch --secret-header'|'fetch --headers-for'|'fetch --timeout') COMPREPLY=($(compgen -W '' -- "$cur")); return ;;
    'fetch --ca-file'|'fetch --proxy'|'fetch --config') _gossamer_files "$cur"; return ;;
    'report -o'|'report --output'|'report --csv') _gossamer_files "$cur"; return ;;
    'shell --resolve'|'shell --user-agent'|'shell --contact'|'shell --header'|'shell --cookie'|'shell --secret-header'|'shell --headers-for'|'shell --timeout'|'shell --command'|'shell -c'|'shell --base-url') COMPREPLY=($(compgen -W '' -- "$cur")); return ;;
    'shell --ca-file'|'shell --proxy'|'shell --config') _gossamer_files "$cur"; return ;;
    'why --crawl-id') COMPREPLY=($(compgen -W "$(_gossamer_crawls)" -- "$cur")); return ;;
    'why --app'|'why --resolve'|'why --frontier') COMPREPLY=($(compgen -W '' -- "$cur")); return ;;
    'why --data-dir'|'why --config') _gossamer_files "$cur"; return ;;
    'up --host'|'up --port'|'up --processes'|'up --concurrency'|'up --bus'|'up --prefix'|'up --contact'|'up --resolve'|'up --allow-network'|'up --frontier'|'up --platform-port') COMPREPLY=($(compgen -W '' -- "$cur")); return ;;
    'up -o'|'up --output'|'up --data-dir'|'up --config'|'up --spider') _gossamer_files "$cur"; return ;;
    'up --log-level') COMPREPLY=($(compgen -W 'debug info warning error critical' -- "$cur")); return ;;
    'up --log-format') COMPREPLY=($(compgen -W 'human json' -- "$cur")); return ;;
    'serve --host'|'serve --port'|'serve --bus'|'serve --prefix'|'serve --allow-network'|'serve --frontier') COMPREPLY=($(compgen -W '' -- "$cur")); return ;;
    'serve --data-dir'|'serve --config') _gossamer_files "$cur"; return ;;
    'serve --log-level') COMPREPLY=($(compgen -W 'debug info warning error critical' -- "$cur")); return ;;
    'serve --log-format') COMPREPLY=($(compgen -W 'human json' -- "$cur")); return ;;
    'worker --pool'|'worker --bus'|'worker --prefix'|'worker --concurrency'|'worker --processes'|'worker --contact'|'worker --resolve'|'worker --allow-network'|'worker --egress'|'worker --frontier') COMPREPLY=($(compgen -W '' -- "$cur")); return ;;
    'worker --spider'|'worker -o'|'worker --output'|'worker --ca-file'|'worker --data-dir'|'worker --config') _gossamer_files "$cur"; return ;;
    'feed --bus'|'feed --prefix'|'feed --frontier') COMPREPLY=($(compgen -W '' -- "$cur")); return ;;
    'feed --data-dir'|'feed --config') _gossamer_files "$cur"; return ;;
    'info --spider'|'info --frontier') COMPREPLY=($(compgen -W '' -- "$cur")); return ;;
    'info --data-dir'|'info --config') _gossamer_files "$cur"; return ;;
    'stop --spider'|'stop --frontier') COMPREPLY=($(compgen -W '' -- "$cur")); return ;;
    'stop --data-dir'|'stop --config') _gossamer_files "$cur"; return ;;
    'stats --frontier') COMPREPLY=($(compgen -W '' -- "$cur")); return ;;
    'stats --data-dir'|'stats --config') _gossamer_files "$cur"; return ;;
    'dump --limit'|'dump --consumer'|'dump -c'|'dump --bus'|'dump --prefix'|'dump --frontier') COMPREPLY=($(compgen -W '' -- "$cur")); return ;;
    'dump --data-dir'|'dump --config') _gossamer_files "$cur"; return ;;
    'monitor --project'|'monitor -p'|'monitor --bus'|'monitor --prefix'|'monitor --frontier') COMPREPLY=($(compgen -W '' -- "$cur")); return ;;
    'monitor --data-dir'|'monitor --config') _gossamer_files "$cur"; return ;;
    'top --data-dir'|'top --config') _gossamer_files "$cur"; return ;;
    'top --metrics') COMPREPLY=($(compgen -W '' -- "$cur")); return ;;
    'diagnose --data-dir'|'diagnose --config') _gossamer_files "$cur"; return ;;
    'diagnose --pages'|'diagnose --interval') COMPREPLY=($(compgen -W '' -- "$cur")); return ;;
    'scrapyd --log-level') COMPREPLY=($(compgen -W 'debug info warning error critical' -- "$cur")); return ;;
    'scrapyd --log-format') COMPREPLY=($(compgen -W 'human json' -- "$cur")); return ;;
    'scrapyd --config'|'scrapyd --folder'|'scrapyd -d'|'scrapyd --scrapyd-conf') _gossamer_files "$cur"; return ;;
    'deploy --project'|'deploy -p'|'deploy --version') COMPREPLY=($(compgen -W '' -- "$cur")); return ;;
    'deploy --egg'|'deploy --build') _gossamer_files "$cur"; return ;;
    'deploy --environment') COMPREPLY=($(compgen -W 'shared isolated' -- "$cur")); return ;;
    'schedule --target'|'schedule -t'|'schedule --project'|'schedule -p'|'schedule -a'|'schedule -s'|'schedule --version'|'schedule --priority'|'schedule --parts'|'schedule --split-as'|'schedule --column'|'schedule --processes') COMPREPLY=($(compgen -W '' -- "$cur")); return ;;
    'schedule --split-file') _gossamer_files "$cur"; return ;;
    'jobs --target'|'jobs -t'|'jobs --project'|'jobs -p'|'jobs --spider'|'jobs --state'|'jobs --group'|'jobs --limit'|'jobs -n') COMPREPLY=($(compgen -W '' -- "$cur")); return ;;
    'job --target'|'job -t'|'job --project'|'job -p'|'job --attempt') COMPREPLY=($(compgen -W '' -- "$cur")); return ;;
    'job --format') COMPREPLY=($(compgen -W 'jsonl json csv xml' -- "$cur")); return ;;
    'manager --log-level') COMPREPLY=($(compgen -W 'debug info warning error critical' -- "$cur")); return ;;
    'manager --log-format') COMPREPLY=($(compgen -W 'human json' -- "$cur")); return ;;
    'manager --config'|'manager --store'|'manager --scrapyd-conf') _gossamer_files "$cur"; return ;;
    'manager --database'|'manager --host'|'manager --port'|'manager --node-limit'|'manager --keep-logs'|'manager --keep-items'|'manager --keep-jobs'|'manager --crawl-service') COMPREPLY=($(compgen -W '' -- "$cur")); return ;;
    'node --log-level') COMPREPLY=($(compgen -W 'debug info warning error critical' -- "$cur")); return ;;
    'node --log-format') COMPREPLY=($(compgen -W 'human json' -- "$cur")); return ;;
    'node --config'|'node --folder'|'node -d') _gossamer_files "$cur"; return ;;
    'node --manager'|'node -m'|'node --token'|'node --slots'|'node -n'|'node --label'|'node --name'|'node --project-users') COMPREPLY=($(compgen -W '' -- "$cur")); return ;;
    'project --target'|'project -t'|'project --project'|'project -p'|'project --spider'|'project --set') COMPREPLY=($(compgen -W '' -- "$cur")); return ;;
    'nodes --target'|'nodes -t'|'nodes --drain'|'nodes --undrain'|'nodes --forget') COMPREPLY=($(compgen -W '' -- "$cur")); return ;;
    'extract --extract'|'extract --ca-file'|'extract --proxy'|'extract --config') _gossamer_files "$cur"; return ;;
    'extract --field'|'extract --each'|'extract --allow-domain'|'extract --resolve'|'extract --user-agent'|'extract --contact'|'extract --header'|'extract --cookie'|'extract --secret-header'|'extract --headers-for'|'extract --timeout'|'extract --url') COMPREPLY=($(compgen -W '' -- "$cur")); return ;;
    'text -o'|'text --output'|'text --config') _gossamer_files "$cur"; return ;;
    'text --chunk'|'text --processes') COMPREPLY=($(compgen -W '' -- "$cur")); return ;;
    'text --text-in') COMPREPLY=($(compgen -W 'records items both' -- "$cur")); return ;;
    'demo --pages') COMPREPLY=($(compgen -W '' -- "$cur")); return ;;
    'demo -o'|'demo --output') _gossamer_files "$cur"; return ;;
    'crawls list --frontier') COMPREPLY=($(compgen -W '' -- "$cur")); return ;;
    'crawls list --data-dir'|'crawls list --config') _gossamer_files "$cur"; return ;;
    'crawls show --frontier') COMPREPLY=($(compgen -W '' -- "$cur")); return ;;
    'crawls show --data-dir'|'crawls show --config') _gossamer_files "$cur"; return ;;
    'crawls delete --frontier') COMPREPLY=($(compgen -W '' -- "$cur")); return ;;
    'crawls delete --data-dir'|'crawls delete --config') _gossamer_files "$cur"; return ;;
    'domains list --frontier') COMPREPLY=($(compgen -W '' -- "$cur")); return ;;
    'domains list --data-dir'|'domains list --config') _gossamer_files "$cur"; return ;;
    'domains set --hits'|'domains set --window'|'domains set --scale'|'domains set --concurrency'|'domains set --frontier') COMPREPLY=($(compgen -W '' -- "$cur")); return ;;
    'domains set --scope') COMPREPLY=($(compgen -W 'domain type ip type+ip' -- "$cur")); return ;;
    'domains set --when-blacklisted') COMPREPLY=($(compgen -W 'held dropped' -- "$cur")); return ;;
    'domains set --data-dir'|'domains set --config') _gossamer_files "$cur"; return ;;
    'domains remove --frontier') COMPREPLY=($(compgen -W '' -- "$cur")); return ;;
    'domains remove --data-dir'|'domains remove --config') _gossamer_files "$cur"; return ;;
    'domains blacklist --frontier') COMPREPLY=($(compgen -W '' -- "$cur")); return ;;
    'domains blacklist --data-dir'|'domains blacklist --config') _gossamer_files "$cur"; return ;;
    'domains load --frontier') COMPREPLY=($(compgen -W '' -- "$cur")); return ;;
    'domains load --data-dir'|'domains load --config') _gossamer_files "$cur"; return ;;
    'domains dump --frontier') COMPREPLY=($(compgen -W '' -- "$cur")); return ;;
    'domains dump --data-dir'|'domains dump --config') _gossamer_files "$cur"; return ;;
    'bench spider --items'|'bench spider --items-per-page'|'bench spider --links'|'bench spider --starts'|'bench spider --response-time'|'bench spider --page-bytes'|'bench spider --concurrency'|'bench spider --item-concurrency'|'bench spider --held-bytes'|'bench spider --processes'|'bench spider --pipeline-time'|'bench spider --slots'|'bench spider --api-calls'|'bench spider --api-time'|'bench spider --log-seconds') COMPREPLY=($(compgen -W '' -- "$cur")); return ;;
    'bench spider --pipeline') COMPREPLY=($(compgen -W 'none wait block cpu threads store' -- "$cur")); return ;;
    'bench spider --data-dir') _gossamer_files "$cur"; return ;;
    'schedules list --target'|'schedules list -t'|'schedules list --project'|'schedules list -p') COMPREPLY=($(compgen -W '' -- "$cur")); return ;;
    'schedules show --target'|'schedules show -t'|'schedules show --project'|'schedules show -p') COMPREPLY=($(compgen -W '' -- "$cur")); return ;;
    'schedules add --target'|'schedules add -t'|'schedules add --project'|'schedules add -p'|'schedules add --cron'|'schedules add --every'|'schedules add --at'|'schedules add --time-zone'|'schedules add --jitter'|'schedules add -a'|'schedules add -s'|'schedules add --version'|'schedules add --depth'|'schedules add --max-pages') COMPREPLY=($(compgen -W '' -- "$cur")); return ;;
    'schedules add --if-running') COMPREPLY=($(compgen -W 'run skip queue' -- "$cur")); return ;;
    'schedules add --missed') COMPREPLY=($(compgen -W 'skip once' -- "$cur")); return ;;
    'schedules add --crawl') _gossamer_files "$cur"; return ;;
    'schedules pause --target'|'schedules pause -t'|'schedules pause --project'|'schedules pause -p') COMPREPLY=($(compgen -W '' -- "$cur")); return ;;
    'schedules resume --target'|'schedules resume -t'|'schedules resume --project'|'schedules resume -p') COMPREPLY=($(compgen -W '' -- "$cur")); return ;;
    'schedules run --target'|'schedules run -t'|'schedules run --project'|'schedules run -p') COMPREPLY=($(compgen -W '' -- "$cur")); return ;;
    'schedules remove --target'|'schedules remove -t'|'schedules remove --project'|'schedules remove -p') COMPREPLY=($(compgen -W '' -- "$cur")); return ;;
    'versions list --target'|'versions list -t'|'versions list --project'|'versions list -p') COMPREPLY=($(compgen -W '' -- "$cur")); return ;;
    'versions pin --target'|'versions pin -t'|'versions pin --project'|'versions pin -p') COMPREPLY=($(compgen -W '' -- "$cur")); return ;;
    'versions unpin --target'|'versions unpin -t'|'versions unpin --project'|'versions unpin -p') COMPREPLY=($(compgen -W '' -- "$cur")); return ;;
    'versions rollback --target'|'versions rollback -t'|'versions rollback --project'|'versions rollback -p') COMPREPLY=($(compgen -W '' -- "$cur")); return ;;
    'versions delete --target'|'versions delete -t'|'versions delete --project'|'versions delete -p') COMPREPLY=($(compgen -W '' -- "$cur")); return ;;
    'variables list --target'|'variables list -t'|'variables list --project'|'variables list -p') COMPREPLY=($(compgen -W '' -- "$cur")); return ;;
    'variables set --target'|'variables set -t'|'variables set --project'|'variables set -p') COMPREPLY=($(compgen -W '' -- "$cur")); return ;;
    'variables delete --target'|'variables delete -t'|'variables delete --project'|'variables delete -p') COMPREPLY=($(compgen -W '' -- "$cur")); return ;;
    'variables rotate --target'|'variables rotate -t') COMPREPLY=($(compgen -W '' -- "$cur")); return ;;
    'tokens list --target'|'tokens list -t') COMPREPLY=($(compgen -W '' -- "$cur")); return ;;
    'tokens make --target'|'tokens make -t'|'tokens make --project'|'tokens make -p'|'tokens make --days') COMPREPLY=($(compgen -W '' -- "$cur")); return ;;
    'tokens make --scope') COMPREPLY=($(compgen -W 'read run deploy admin node' -- "$cur")); return ;;
    'tokens release --target'|'tokens release -t') COMPREPLY=($(compgen -W '' -- "$cur")); return ;;
    'tokens revoke --target'|'tokens revoke -t') COMPREPLY=($(compgen -W '' -- "$cur")); return ;;
    'migrate scrapy-redis --spider'|'migrate scrapy-redis --redis'|'migrate scrapy-redis --frontier'|'migrate scrapy-redis --bot'|'migrate scrapy-redis --crawl'|'migrate scrapy-redis --queue-key'|'migrate scrapy-redis --dupefilter-key'|'migrate scrapy-redis --start-urls-key') COMPREPLY=($(compgen -W '' -- "$cur")); return ;;
    'migrate scrapy-redis --config') _gossamer_files "$cur"; return ;;
    esac
    case $command in
    '') COMPREPLY=($(compgen -W 'crawl export fetch report shell why up serve worker feed info stop stats dump monitor top diagnose scrapyd deploy schedule jobs job manager node project nodes extract text completion demo new crawls domains bench schedules versions variables tokens migrate --help --version' -- "$cur")) ;;
    'crawl') COMPREPLY=($(compgen -W '--help --seeds --depth --max-pages --domain-max-pages --scope --query-order --drop-parameter --pattern-max-pages --path-repeats --allow-domain --allow --deny --deny-extension --sitemaps --follow-nofollow --spider --priority --expires --rate --domain-concurrency --concurrency --processes --extract --field --each --unique --assets --max-assets --assets-max-bytes --text --markdown --chunk --text-in -o --output --items --pages --csv-guard --links --assets-to --report --attrs --resolve --allow-private --ignore-robots --robots-patience --insecure --ca-file --user-agent --contact --header --cookie --secret-header --headers-for --proxy --egress --timeout --retries --frontier --data-dir --config --verbose -v --crawl-id --fresh --append --json --quiet -q' -- "$cur")) ;;
    'export') COMPREPLY=($(compgen -W '--help --items --pages --force -f --csv-guard --format --json --quiet -q' -- "$cur")) ;;
    'fetch') COMPREPLY=($(compgen -W '--help --scope --allow-domain --allow --deny --deny-extension --follow-nofollow --resolve --allow-private --ignore-robots --insecure --ca-file --user-agent --contact --header --cookie --secret-header --headers-for --proxy --timeout --config --verbose -v --json' -- "$cur")) ;;
    'report') COMPREPLY=($(compgen -W '--help -o --output --force -f --csv --json --quiet -q' -- "$cur")) ;;
    'shell')
        if [[ $cur == -* ]]; then COMPREPLY=($(compgen -W '--help --resolve --allow-private --ignore-robots --insecure --ca-file --user-agent --contact --header --cookie --secret-header --headers-for --proxy --timeout --config --verbose -v --command -c --base-url' -- "$cur")); else _gossamer_files "$cur"; fi ;;
    'why') COMPREPLY=($(compgen -W '--help --crawl-id --app --resolve --frontier --data-dir --config --verbose -v --json' -- "$cur")) ;;
    'up') COMPREPLY=($(compgen -W '--help --host --port --processes --concurrency --bus --prefix -o --output --items --pages --csv-guard --contact --resolve --allow-network --frontier --data-dir --log-level --log-format --config --verbose -v --spider --platform --platform-port' -- "$cur")) ;;
    'serve') COMPREPLY=($(compgen -W '--help --host --port --bus --prefix --allow-network --frontier --data-dir --log-level --log-format --config --verbose -v' -- "$cur")) ;;
    'worker') COMPREPLY=($(compgen -W '--help --pool --spider -o --output --items --pages --csv-guard --bus --prefix --concurrency --processes --contact --resolve --allow-network --ca-file --egress --frontier --data-dir --config --verbose -v --json --quiet -q' -- "$cur")) ;;
    'feed')
        if [[ $cur == -* ]]; then COMPREPLY=($(compgen -W '--help --bus --prefix --frontier --data-dir --config --verbose -v --json --quiet -q' -- "$cur")); else _gossamer_files "$cur"; fi ;;
    'info')
        if [[ $cur == -* ]]; then COMPREPLY=($(compgen -W '--help --spider --frontier --data-dir --config --verbose -v --json' -- "$cur")); else COMPREPLY=($(compgen -W "$(_gossamer_crawls)" -- "$cur")); fi ;;
    'stop')
        if [[ $cur == -* ]]; then COMPREPLY=($(compgen -W '--help --spider --frontier --data-dir --config --verbose -v --json' -- "$cur")); else COMPREPLY=($(compgen -W "$(_gossamer_crawls)" -- "$cur")); fi ;;
    'stats')
        if [[ $cur == -* ]]; then COMPREPLY=($(compgen -W '--help --frontier --data-dir --config --verbose -v --json' -- "$cur")); else COMPREPLY=($(compgen -W 'all intake actions crawler spider machine queue rest' -- "$cur")); fi ;;
    'dump') COMPREPLY=($(compgen -W '--help --list --from-beginning -b --limit --consumer -c --no-body --just-body --decode-base64 -d --pretty -p --bus --prefix --frontier --data-dir --config --verbose -v --json' -- "$cur")) ;;
    'monitor') COMPREPLY=($(compgen -W '--help --project -p --bus --prefix --frontier --data-dir --config --verbose -v --once --json' -- "$cur")) ;;
    'top')
        if [[ $cur == -* ]]; then COMPREPLY=($(compgen -W '--help --data-dir --config --verbose -v --once --json --metrics' -- "$cur")); else _gossamer_files "$cur"; fi ;;
    'diagnose')
        if [[ $cur == -* ]]; then COMPREPLY=($(compgen -W '--help --data-dir --config --verbose -v --pages --interval --json' -- "$cur")); else _gossamer_files "$cur"; fi ;;
    'scrapyd') COMPREPLY=($(compgen -W '--help --log-level --log-format --config --verbose -v --folder -d --scrapyd-conf' -- "$cur")) ;;
    'deploy') COMPREPLY=($(compgen -W '--help --project -p --version --all -a --list -l --egg --environment --build --quiet -q --json' -- "$cur")) ;;
    'schedule') COMPREPLY=($(compgen -W '--help --target -t --project -p -a -s --version --priority --split-file --parts --split-as --column --processes --wait --follow -f --json' -- "$cur")) ;;
    'jobs') COMPREPLY=($(compgen -W '--help --target -t --project -p --spider --state --group --limit -n --all --watch --json' -- "$cur")) ;;
    'job') COMPREPLY=($(compgen -W '--help --target -t --project -p --log --follow -f --items --format --attempt --cancel --again --wait --json' -- "$cur")) ;;
    'manager') COMPREPLY=($(compgen -W '--help --log-level --log-format --config --verbose -v --store --database --host --port --node-limit --keep-logs --keep-items --keep-jobs --crawl-service --scrapyd-conf' -- "$cur")) ;;
    'node') COMPREPLY=($(compgen -W '--help --log-level --log-format --config --verbose -v --manager -m --token --slots -n --label --name --folder -d --project-users' -- "$cur")) ;;
    'project') COMPREPLY=($(compgen -W '--help --target -t --project -p --spider --set --json' -- "$cur")) ;;
    'nodes') COMPREPLY=($(compgen -W '--help --target -t --drain --undrain --forget --json' -- "$cur")) ;;
    'extract')
        if [[ $cur == -* ]]; then COMPREPLY=($(compgen -W '--help --extract --field --each --allow-domain --resolve --allow-private --ignore-robots --insecure --ca-file --user-agent --contact --header --cookie --secret-header --headers-for --proxy --timeout --config --verbose -v --url --json' -- "$cur")); else _gossamer_files "$cur"; fi ;;
    'text') COMPREPLY=($(compgen -W '--help -o --output --items --pages --csv-guard --text --markdown --chunk --text-in --processes --config --verbose -v --force -f --json --quiet -q' -- "$cur")) ;;
    'completion')
        if [[ $cur == -* ]]; then COMPREPLY=($(compgen -W '--help' -- "$cur")); else COMPREPLY=($(compgen -W 'bash zsh fish' -- "$cur")); fi ;;
    'demo') COMPREPLY=($(compgen -W '--help --pages -o --output --json' -- "$cur")) ;;
    'new') COMPREPLY=($(compgen -W 'spider --help' -- "$cur")) ;;
    'new spider') COMPREPLY=($(compgen -W '--help' -- "$cur")) ;;
    'crawls') COMPREPLY=($(compgen -W 'list show delete --help' -- "$cur")) ;;
    'crawls list') COMPREPLY=($(compgen -W '--help --frontier --data-dir --config --verbose -v --json' -- "$cur")) ;;
    'crawls show')
        if [[ $cur == -* ]]; then COMPREPLY=($(compgen -W '--help --frontier --data-dir --config --verbose -v --json' -- "$cur")); else COMPREPLY=($(compgen -W "$(_gossamer_crawls)" -- "$cur")); fi ;;
    'crawls delete')
        if [[ $cur == -* ]]; then COMPREPLY=($(compgen -W '--help --frontier --data-dir --config --verbose -v --yes -y --stop' -- "$cur")); else COMPREPLY=($(compgen -W "$(_gossamer_crawls)" -- "$cur")); fi ;;
    'domains') COMPREPLY=($(compgen -W 'list set remove blacklist load dump --help' -- "$cur")) ;;
    'domains list') COMPREPLY=($(compgen -W '--help --frontier --data-dir --config --verbose -v --json' -- "$cur")) ;;
    'domains set') COMPREPLY=($(compgen -W '--help --default --hits --window --scale --moderated --bursts --scope --concurrency --when-blacklisted --frontier --data-dir --config --verbose -v --json' -- "$cur")) ;;
    'domains remove') COMPREPLY=($(compgen -W '--help --frontier --data-dir --config --verbose -v' -- "$cur")) ;;
    'domains blacklist') COMPREPLY=($(compgen -W '--help --remove --frontier --data-dir --config --verbose -v' -- "$cur")) ;;
    'domains load')
        if [[ $cur == -* ]]; then COMPREPLY=($(compgen -W '--help --frontier --data-dir --config --verbose -v' -- "$cur")); else _gossamer_files "$cur"; fi ;;
    'domains dump') COMPREPLY=($(compgen -W '--help --frontier --data-dir --config --verbose -v' -- "$cur")) ;;
    'bench') COMPREPLY=($(compgen -W 'spider --help' -- "$cur")) ;;
    'bench spider') COMPREPLY=($(compgen -W '--help --items --items-per-page --links --starts --response-time --page-bytes --concurrency --item-concurrency --held-bytes --processes --pipeline --direct --data-dir --pipeline-time --slots --api-calls --api-time --log-seconds' -- "$cur")) ;;
    'schedules') COMPREPLY=($(compgen -W 'list show add pause resume run remove --help' -- "$cur")) ;;
    'schedules list') COMPREPLY=($(compgen -W '--help --target -t --project -p --all --json' -- "$cur")) ;;
    'schedules show') COMPREPLY=($(compgen -W '--help --target -t --project -p --json' -- "$cur")) ;;
    'schedules add') COMPREPLY=($(compgen -W '--help --target -t --project -p --cron --every --at --time-zone --if-running --missed --jitter -a -s --version --crawl --depth --max-pages --json' -- "$cur")) ;;
    'schedules pause') COMPREPLY=($(compgen -W '--help --target -t --project -p' -- "$cur")) ;;
    'schedules resume') COMPREPLY=($(compgen -W '--help --target -t --project -p' -- "$cur")) ;;
    'schedules run') COMPREPLY=($(compgen -W '--help --target -t --project -p' -- "$cur")) ;;
    'schedules remove') COMPREPLY=($(compgen -W '--help --target -t --project -p' -- "$cur")) ;;
    'versions') COMPREPLY=($(compgen -W 'list pin unpin rollback delete --help' -- "$cur")) ;;
    'versions list') COMPREPLY=($(compgen -W '--help --target -t --project -p --json' -- "$cur")) ;;
    'versions pin') COMPREPLY=($(compgen -W '--help --target -t --project -p' -- "$cur")) ;;
    'versions unpin') COMPREPLY=($(compgen -W '--help --target -t --project -p' -- "$cur")) ;;
    'versions rollback') COMPREPLY=($(compgen -W '--help --target -t --project -p' -- "$cur")) ;;
    'versions delete') COMPREPLY=($(compgen -W '--help --target -t --project -p --force' -- "$cur")) ;;
    'variables') COMPREPLY=($(compgen -W 'list set delete rotate --help' -- "$cur")) ;;
    'variables list') COMPREPLY=($(compgen -W '--help --target -t --project -p --json' -- "$cur")) ;;
    'variables set') COMPREPLY=($(compgen -W '--help --target -t --project -p --secret' -- "$cur")) ;;
    'variables delete') COMPREPLY=($(compgen -W '--help --target -t --project -p' -- "$cur")) ;;
    'variables rotate') COMPREPLY=($(compgen -W '--help --target -t' -- "$cur")) ;;
    'tokens') COMPREPLY=($(compgen -W 'list make release revoke --help' -- "$cur")) ;;
    'tokens list') COMPREPLY=($(compgen -W '--help --target -t --json' -- "$cur")) ;;
    'tokens make') COMPREPLY=($(compgen -W '--help --target -t --project -p --scope --days' -- "$cur")) ;;
    'tokens release') COMPREPLY=($(compgen -W '--help --target -t' -- "$cur")) ;;
    'tokens revoke') COMPREPLY=($(compgen -W '--help --target -t' -- "$cur")) ;;
    'migrate') COMPREPLY=($(compgen -W 'scrapy-redis --help' -- "$cur")) ;;
    'migrate scrapy-redis') COMPREPLY=($(compgen -W '--help --spider --redis --frontier --config --verbose -v --bot --crawl --lifo --queue-key --dupefilter-key --start-urls-key --dry-run --json --quiet -q' -- "$cur")) ;;
    esac
}

complete -F _gossamer gossamer
