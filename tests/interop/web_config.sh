#!/bin/bash
# web_config.sh EXPORTER
#
# Serves with TLS, passwords and certificates of clients, to curl, openssl and a real Prometheus: a web configuration file in the format of
# Prometheus' exporter-toolkit. Tries wrong, expired and missing certificates, old versions of TLS, wrong passwords, and changes of the files.
# Requires prometheus, curl, openssl and python3.
# Exit code: 0 if every check passes, 1 if not, 2 if a requirement is missing.
set -euo pipefail

exporter=${1:?usage: web_config.sh EXPORTER}
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

# issue NAME AUTHORITY SUBJECT_ALTERNATIVE_NAMES [OPTIONS]: creates NAME.key, and NAME.crt, signed by AUTHORITY.key
issue() {
  openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout "$1.key" -out "$1.csr" -subj "/CN=$1" 2>/dev/null
  openssl x509 -req -in "$1.csr" -CA "$2.crt" -CAkey "$2.key" -CAcreateserial -days 2 -out "$1.crt" "${@:4}" \
    -extfile <(echo "subjectAltName=$3") 2>/dev/null
}

# authority NAME: creates NAME.key and the self-signed NAME.crt
authority() {
  openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout "$1.key" -out "$1.crt" -days 2 -subj "/CN=$1" 2>/dev/null
}

# code PATH [CURL ARGUMENTS]: prints the status of the response, or 000 without a response
code() {
  curl -s -o /dev/null -w '%{http_code}' --max-time 20 --cacert "$scratch/ca.crt" "${@:2}" "https://$exporter_address$1" || true
}

# answers STATUS PATH [CURL ARGUMENTS]
answers() {
  [ "$(code "${@:2}")" = "$1" ]
}

# Prints the serial number of the server's certificate.
serial() {
  openssl s_client -connect "$exporter_address" </dev/null 2>/dev/null | openssl x509 -noout -serial
}

serves_certificate() {
  [ "$(serial)" = "$(openssl x509 -noout -serial -in "$1.crt")" ]
}

logs() {
  grep -q "$1" "$scratch/exporter.log"
}

# start_prometheus SCRAPE_CONFIG: sets prometheus_port
start_prometheus() {
  prometheus_port=$(python3 -c 'import socket; s = socket.create_server(("127.0.0.1", 0)); print(s.getsockname()[1])')
  cat >prometheus.yaml <<-END
	global: {scrape_interval: 3s, scrape_timeout: 3s}
	scrape_configs:
	  - job_name: perf
	    scheme: https
	    static_configs: [{targets: ["$exporter_address"]}]
	$1
	END
  prometheus --config.file=prometheus.yaml --storage.tsdb.path=data --log.level=warn \
    --web.listen-address="127.0.0.1:$prometheus_port" >prometheus.log 2>&1 &
  prometheus_pid=$!
  pids+=($!)
}

# holds PROMQL: reports whether the query has a result; a false comparison has none
holds() {
  curl -sSf --max-time 5 --get --data-urlencode "query=$1" "http://127.0.0.1:$prometheus_port/api/v1/query" 2>/dev/null |
    python3 -c "import json, sys; sys.exit(not json.load(sys.stdin)['data']['result'])" 2>/dev/null
}

needs "$exporter" "curl python3 openssl prometheus" curl python3 openssl prometheus
exporter=$(realpath "$exporter")
cd "$scratch"
authority ca
authority other
issue first ca IP:127.0.0.1,DNS:localhost
issue second ca IP:127.0.0.1,DNS:localhost
issue scraper ca DNS:scraper.example
issue stranger ca DNS:stranger.example
issue foreign other DNS:scraper.example
issue expired ca DNS:scraper.example -not_before 20200101000000Z -not_after 20200102000000Z || true
[ -s expired.crt ] || openssl x509 -req -in expired.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days -1 -out expired.crt \
  -extfile <(echo subjectAltName=DNS:scraper.example) 2>/dev/null
cp first.crt server.crt
cp first.key server.key
# The password is `right`.
# shellcheck disable=SC2016  # no expansion
hash='$2b$10$M4aoGfZDlHfRPwjIRF8sb.3IGQ.yZ6OFJr5nRV6PX/n3K8eGOatW6'
cat >web.yaml <<END
tls_server_config: {cert_file: server.crt, key_file: server.key}
basic_auth_users: {anna: "$hash"}
auth_excluded_paths: [/-/healthy]
http_server_config: {http2: true, headers: {Strict-Transport-Security: max-age=60}}
END
start_exporter "$exporter" --web.config.file "$scratch/web.yaml" <<'YAML'
counters:
  os: {events: [task-clock], per: [cpu]}
YAML

echo "-- TLS and a password"
expect "a scrape without a password is refused" answers 401 /metrics
expect "a scrape with the password is answered" answers 200 /metrics -u anna:right
expect "pages and reloads are open with the password" answers 200 /status -u anna:right
expect "an excluded path needs no password" answers 200 /-/healthy
expect "the configured header is sent" grep -qi '^strict-transport-security: max-age=60' <(curl -sD - -o /dev/null --cacert ca.crt "https://$exporter_address/-/healthy")
for version in 1.0 1.1; do
  expect "TLS $version is refused" answers 000 /-/healthy --tlsv1.0 --tls-max $version --ciphers 'DEFAULT@SECLEVEL=0'
done
for version in 1.2 1.3; do
  expect "TLS $version is accepted" answers 200 /-/healthy "--tlsv$version" --tls-max $version
done
expect "http:// on the port is told to use TLS" grep -q 'this port uses TLS' <(curl -s "http://$exporter_address/metrics")
start_prometheus '    tls_config: {ca_file: ca.crt}
    basic_auth: {username: anna, password: right}'
expect "Prometheus scrapes with TLS and the password" within 60 holds 'up == 1'

echo "-- guesses"
expect "wrong passwords are refused" answers 401 /metrics -u anna:wrong
for guess in 1 2 3 4 5 6; do
  code /metrics -u "anna:wrong$guess" >/dev/null
done
expect "after five of them the address has to wait" answers 429 /metrics -u anna:wrong
expect "the right password of others at the address is still accepted" answers 200 /metrics -u anna:right
sleep 7
expect "Prometheus does not miss a scrape" holds 'min_over_time(up[6s]) == 1'
expect "the guesses are in the log with the address" logs 'wrong user name or password.*peer=127.0.0.1'

echo "-- handshakes that do not end"
# closes_connection SECONDS BYTES: reports whether the server closes a connection on which only these bytes arrive, within this time
closes_connection() {
  python3 - "${exporter_address##*:}" "$@" <<'PYTHON'
import socket, sys
port, seconds, data = int(sys.argv[1]), int(sys.argv[2]), bytes.fromhex(sys.argv[3])
with socket.create_connection(("127.0.0.1", port)) as connection:
    connection.sendall(data)
    connection.settimeout(seconds)
    try:
        while connection.recv(4096):
            pass
    except TimeoutError:
        sys.exit(1)
    except ConnectionResetError:
        pass
PYTHON
}
expect "a client that sends nothing is disconnected" closes_connection 8 ""
expect "a client that stops within its handshake is disconnected" closes_connection 8 16030100
expect "bytes that are no handshake end the connection at once" closes_connection 2 16030100050000000000
expect "other clients are answered meanwhile" answers 200 /metrics -u anna:right

echo "-- changed files"
expect "the first certificate is served" serves_certificate first
cp second.crt server.crt
expect "a certificate without its key is not used, and the log says why" within 20 logs 'does not match its key'
expect "the previous certificate stays in use" serves_certificate first
cp second.key server.key
expect "the new certificate is served without a restart" within 20 serves_certificate second
sed -i 's/, key_file.*/, key_file: server.key, unknown: 1}/' web.yaml
expect "an unknown key is in the log" within 20 logs 'unknown setting `unknown`'
expect "and changes nothing" answers 200 /metrics -u anna:right
rm web.yaml
sleep 6
expect "a file that went away opens nothing" answers 401 /metrics
stop "$prometheus_pid"
stop "${pids[0]}"

echo "-- certificates of clients"
cat >web.yaml <<END
tls_server_config:
  cert_file: server.crt
  key_file: server.key
  client_auth_type: RequireAndVerifyClientCert
  client_ca_file: ca.crt
  client_allowed_sans: [scraper.example]
END
start_exporter "$exporter" --web.config.file "$scratch/web.yaml" <<'YAML'
counters:
  os: {events: [task-clock], per: [cpu]}
web: {access: {profiles: authenticated, admin: authenticated}}
YAML
with() {
  answers "$2" /status --cert "$1.crt" --key "$1.key"
}
expect "no certificate: no connection" answers 000 /metrics
expect "the certificate of the scraper opens pages" with scraper 200
expect "a certificate of the authority with another name is refused" with stranger 000
expect "a certificate of another authority is refused" with foreign 000
expect "an expired certificate is refused" with expired 000
start_prometheus '    tls_config: {ca_file: ca.crt, cert_file: scraper.crt, key_file: scraper.key}'
expect "Prometheus scrapes with its certificate" within 60 holds 'up == 1'

echo "-- what cannot work is not started"
refuses() {
  ! "$exporter" check --web.config.file "$1" >refused.txt 2>&1 && grep -q "$2" refused.txt
}
echo 'tls_server_config: {cert_file: absent.crt, key_file: server.key}' >bad.yaml
expect "an absent certificate is named" refuses bad.yaml 'absent.crt: ENOENT'
echo 'web: {}' >bad.yaml
expect "an unknown key is an error" refuses bad.yaml 'unknown setting `web`'
echo 'basic_auth_users: {anna: right}' >bad.yaml
expect "a password that is not hashed is an error" refuses bad.yaml 'not a bcrypt hash'
shows_the_password() {
  grep -q right refused.txt
}
expect "the password is not shown" eval "! shows_the_password"
finish exporter prometheus
