#!/bin/bash
# web_config.sh EXPORTER
#
# Serves with TLS, passwords and certificates of clients, to curl, openssl, a real Prometheus, and the HTTP client of exporter-toolkit: a web
# configuration file in the format of the toolkit. Tries wrong, expired and missing certificates, old versions of TLS, wrong passwords, changes
# of the files, and what reloads and open connections get then; also tokens of a cluster, unix sockets, addresses for administrators, and
# sockets of a service manager.
# Checks the example files and the test files of the toolkit.
# Requires prometheus, curl, openssl and python3. The client is built from Go modules, and the files of the toolkit are those of its module; if
# that is not possible, it is skipped with a reason, or fails if PERF_EXPORTER_REQUIRE names `client`.
# Exit code: 0 if every check passes, 1 if not, 2 if a requirement is missing.
set -euo pipefail

exporter=${1:?usage: web_config.sh EXPORTER}
here=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
. "$here/lib.sh"

# Cache for later runs: the client, and the files of exporter-toolkit.
cache=${WEB_CONFIG_CACHE:-$(dirname "$exporter")/../interop}
TOOLKIT=github.com/prometheus/exporter-toolkit@v0.17.1

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

# reload_fails TEXT: reports whether a reload is answered with status 500 and this text
reload_fails() {
  curl -s --max-time 20 --cacert "$scratch/ca.crt" -u anna:right -X POST -w '%{http_code}' "https://$exporter_address/-/reload" >reload.txt
  grep -q "$1" reload.txt && grep -q '500$' reload.txt
}

status_contains() {
  curl -s --max-time 20 --cacert "$scratch/ca.crt" -u anna:right "https://$exporter_address/api/v1/status" | grep -q "$1"
}

# keep_connection FILE CERTIFICATE: requests /-/healthy, and writes to FILE `open`, then `closed` when the server closes the connection without
# another response
keep_connection() {
  python3 - "${exporter_address##*:}" "$2" >"$1" <<'PYTHON' &
import socket, ssl, sys
context = ssl.create_default_context(cafile="ca.crt")
context.load_cert_chain(f"{sys.argv[2]}.crt", f"{sys.argv[2]}.key")
with context.wrap_socket(socket.create_connection(("127.0.0.1", int(sys.argv[1]))), server_hostname="localhost") as connection:
    connection.sendall(b"GET /-/healthy HTTP/1.1\r\nHost: localhost\r\n\r\n")
    answer = b""
    while not answer.endswith(b"healthy\n"):
        answer += connection.recv(4096)
    print("open", flush=True)
    print("closed" if connection.recv(4096) == b"" else "answered", flush=True)
PYTHON
  pids+=($!)
  within 20 grep -q open "$1"
}

logs() {
  grep -q "$1" "$scratch/exporter.log"
}

# start_prometheus SCRAPE_CONFIG: sets prometheus_port
start_prometheus() {
  prometheus_port=$(free_ports 1)
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
mkdir -p "$cache"
cache=$(cd "$cache" && pwd)
has_client=false
if build_go client "the HTTP client of exporter-toolkit"; then
  has_client=true
fi

# get_toolkit: copies the files of exporter-toolkit to $cache/toolkit
get_toolkit() {
  local go dir=''
  [ ! -d "$cache/toolkit" ] || return 0
  go=$(PATH=$PATH:/usr/local/go/bin command -v go || true)
  if [ -n "$go" ]; then
    dir=$(cd "$scratch" && timeout 300 "$go" mod download -json "$TOOLKIT" 2>"$scratch/go.log" | sed -n 's/^\t"Dir": "\(.*\)",$/\1/p')
  fi
  if [ -z "$dir" ]; then
    lacks client "the files of exporter-toolkit" "its Go module could not be downloaded"
    return 1
  fi
  # The examples refer to a certificate and a key beside them.
  mkdir "$cache/toolkit.new"
  cp "$dir"/web/testdata/* "$cache/toolkit.new/"
  cp "$dir/web/web-config.yml" "$cache/toolkit.new/example_minimal.yml"
  cp "$dir/docs/web-config.yml" "$cache/toolkit.new/example_documented.yml"
  chmod u+w "$cache"/toolkit.new/*
  mv "$cache/toolkit.new" "$cache/toolkit"
}

cd "$scratch"
authority ca
authority other
issue first ca IP:127.0.0.1,DNS:localhost
issue second ca IP:127.0.0.1,DNS:localhost
issue scraper ca DNS:scraper.example
issue stranger ca DNS:stranger.example
issue foreign other DNS:scraper.example
issue mailer ca email:scraper@example.org
issue other-mailer ca email:Scraper@example.org
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
expect "the status reports it" within 10 status_contains 'does not match its key'
expect "a reload is answered with it" reload_fails 'does not match its key'
cp second.key server.key
expect "the new certificate is served without a restart" within 20 serves_certificate second
expect "a reload is answered with success" answers 200 /-/reload -u anna:right -X POST
expect "the status reports no failure" within 10 status_contains '"failed_reload": null'
sed -i 's/, key_file.*/, key_file: server.key, unknown: 1}/' web.yaml
expect "an unknown key is in the log" within 20 logs 'unknown setting `unknown`'
expect "and in the response to a reload" reload_fails 'unknown setting `unknown`'
expect "and changes nothing" answers 200 /metrics -u anna:right
rm web.yaml
expect "a reload without the file fails" reload_fails 'ENOENT'
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

echo "-- open connections of clients whose certificates are not accepted any more"
allow() {
  sed -i "s/client_allowed_sans: .*/client_allowed_sans: [$1]/" web.yaml
}
expect "a connection stays open between requests" keep_connection kept scraper
cp first.crt server.crt
cp first.key server.key
expect "a renewed certificate of the server is served" within 20 serves_certificate first
sleep 1
expect "and closes no connection" [ "$(cat kept)" = open ]
allow "scraper.example, scraper@example.org"
expect "a client with an e-mail address in its certificate is accepted" within 20 with mailer 200
expect "an address that differs in one letter is refused" with other-mailer 000
expect "the connection from before is closed" within 20 grep -q closed kept
sleep 7
expect "Prometheus opens another one and does not miss a scrape" holds 'min_over_time(up[6s]) == 1'
expect "another connection stays open" keep_connection kept scraper
allow "scraper@example.org"
expect "the certificate of the scraper is refused" within 20 with scraper 000
expect "its open connection is closed without a response" within 20 grep -q closed kept
expect "and the open one of Prometheus" within 20 holds 'up == 0'
allow scraper.example
expect "the certificate is accepted again" within 20 with scraper 200

echo "-- everything at once, and the client of exporter-toolkit"
echo "basic_auth_users: {anna: \"$hash\"}" >>web.yaml
# client STATUS PASSWORD CERTIFICATE: scrapes in protobuf format; a response with status 200 must contain metrics
client() {
  cat >client.yaml <<-END
	tls_config: {ca_file: ca.crt, cert_file: $3.crt, key_file: $3.key}
	basic_auth: {username: anna, password: $2}
	END
  "$cache/client" client.yaml "https://$exporter_address/metrics" >client.txt 2>client.log || return 1
  read -r status is_protobuf families <client.txt
  [ "$status" = "$1" ] && { [ "$status" != 200 ] || { [ "$is_protobuf" = true ] && [ "$families" -gt 20 ]; }; }
}
expect "a password is necessary besides the certificate" within 20 with scraper 401
if $has_client; then
  expect "the client scrapes with TLS, a password and its certificate" client 200 right scraper
  expect "a wrong password is refused" client 401 wrong scraper
  expect "without the right certificate there is no connection" eval '! client 200 right foreign && grep -q "certificate" client.log'
fi

echo "-- tokens of a cluster"
# An API server: the token `good` belongs to anna, who may get /metrics and /status.
cat >api.py <<-END
	import http.server, json, ssl
	class Reviews(http.server.BaseHTTPRequestHandler):
	    def do_POST(self):
	        review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
	        spec = review["spec"]
	        if self.headers["Authorization"] != "Bearer own-token":
	            self.send_error(401)
	            return
	        print(self.path, json.dumps(spec), flush=True)
	        if review["kind"] == "TokenReview":
	            user = {"username": "anna", "groups": ["ops"]}
	            status = {"authenticated": True, "user": user} if spec["token"] == "good" else {"user": {}, "error": "invalid"}
	        else:
	            asked = spec["nonResourceAttributes"]
	            status = {"allowed": spec["user"] == "anna" and asked["verb"] == "get" and asked["path"] in ("/metrics", "/status")}
	        body = json.dumps({**review, "status": status}).encode()
	        self.send_response(201)
	        self.send_header("Content-Length", str(len(body)))
	        self.end_headers()
	        self.wfile.write(body)
	    def log_message(self, *_):
	        pass
	server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Reviews)
	context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
	context.load_cert_chain("first.crt", "first.key")
	server.socket = context.wrap_socket(server.socket, server_side=True)
	print(server.server_port, file=open("api.port", "w"), flush=True)
	server.serve_forever()
	END
python3 api.py >api.log 2>&1 &
api_pid=$!
pids+=($!)
within 20 test -s api.port
echo own-token >own-token
cat >web.yaml <<END
tls_server_config: {cert_file: server.crt, key_file: server.key}
access: {metrics: authenticated, profiles: authenticated, admin: authenticated}
kubernetes: {url: "https://127.0.0.1:$(cat api.port)", ca: ca.crt, token: own-token}
END
start_exporter "$exporter" --web.config.file "$scratch/web.yaml" <<'YAML'
counters:
  os: {events: [task-clock], per: [cpu]}
YAML
bearer() {
  answers "$2" "$3" -H "Authorization: Bearer $1" "${@:4}"
}
expect "without a token, metrics are refused" answers 403 /metrics
expect "health is open" answers 200 /-/healthy
expect "a token that the API server permits reads metrics" bearer good 200 /metrics
expect "and the status" bearer good 200 /status
expect "a path that the API server refuses is refused" bearer good 403 /top
expect "a reload as well" bearer good 403 /-/reload -X POST
expect "an unknown token is refused" bearer bad 401 /metrics
expect "Prometheus scrapes with its token" eval 'start_prometheus "    tls_config: {ca_file: ca.crt}
    authorization: {credentials: good}"; within 60 holds "up == 1"'
expect "a decision is remembered: the API server reviews each path once" eval '[ "$(grep -c "\"/metrics\"" api.log)" = 1 ]'
kill "$api_pid"
expect "known tokens are accepted while the API server is away" bearer good 200 /metrics
expect "others are not, and the response says why" eval '[ "$(curl -s --cacert ca.crt -H "Authorization: Bearer new" "https://$exporter_address/metrics" | grep -c "has not reviewed the token")" = 1 ]'
stop "$prometheus_pid"

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

echo "-- the files of exporter-toolkit"
accepts() {
  "$exporter" check --config small.yaml --web.config.file "$1" >accepted.txt 2>&1 || {
    cat accepted.txt
    return 1
  }
}
# is_wrong FILE: reports whether the exporter has to reject a file. The names of the files say what the toolkit does. Differences:
# - In two of them, only a connection fails in the toolkit: the client has another name, or HTTP/2 lacks its cipher suite.
# - A file without an authority of clients lets the toolkit accept certificates of all public authorities.
# - A burst of 0 lets the toolkit answer no request.
is_wrong() {
  case $(basename "$1") in
    *client_san.bad.yaml | *noHTTP2Cipher.bad.yml) false ;;
    *.bad.yml | *junk*.yml | *.good.blocking.yml | *rate_limiter_one_second.yaml) true ;;
    *) false ;;
  esac
}
if get_toolkit; then
  echo 'counters: {os: {events: [task-clock], per: [cpu]}}' >small.yaml
  for file in "$cache"/toolkit/*.y*ml; do
    if is_wrong "$file"; then
      expect "$(basename "$file") is rejected" eval '! accepts "$file" >/dev/null'
    else
      expect "$(basename "$file") is accepted" accepts "$file"
    fi
  done
fi

echo "-- unix sockets, addresses for administrators, socket activation"
# By this address, a client on this machine counts as one in the network.
network=$(hostname -I | awk '{print $1}')
cat >sockets.yaml <<-END
	listen: ["$network:0", "unix:$scratch/http.sock"]
	admin: "$network:0"
	socket_mode: "0600"
	counters: {os: {events: [task-clock], per: [cpu]}}
	END
"$exporter" run --config sockets.yaml >sockets.log 2>&1 &
sockets_pid=$!
pids+=($!)
expect "it serves on all addresses" within 60 grep -q "serving on unix:$scratch/http.sock" sockets.log
# url WORDS: prints the URL in the first line of the log with these words
url() {
  grep -m1 "serving on http.*$1" sockets.log | grep -o 'http://[^/]*/'
}
# gives STATUS [CURL ARGUMENTS]
gives() {
  [ "$(curl -s -o /dev/null -w '%{http_code}' --max-time 20 "${@:2}")" = "$1" ]
}
expect "metrics are open to the network" gives 200 "$(url '[0-9]/$')metrics"
expect "pages are not" gives 403 "$(url '[0-9]/$')status"
expect "by the address for administrators, pages are" gives 200 "$(url 'rights of clients')status"
expect "a reload as well" gives 200 -X POST "$(url 'rights of clients')-/reload"
expect "a client of the unix socket is one of this machine" gives 200 --unix-socket http.sock http://localhost/status
expect "the log names it by its user" within 10 eval 'curl -s -o /dev/null --unix-socket http.sock -X POST http://localhost/-/reload; grep -q "peer=uid 0" sockets.log'
expect "the socket has its permissions" [ "$(stat -c %a http.sock)" = 600 ]
kill "$sockets_pid"
expect "the socket is removed at the end" within 10 eval '! [ -e http.sock ]'

# As a service manager does: the program gets listening sockets, and their names.
cat >activate.py <<-END
	import os, socket, sys
	tcp = socket.create_server(("$network", 0))
	unix = socket.socket(socket.AF_UNIX)
	unix.bind("passed.sock")
	unix.listen()
	print(tcp.getsockname()[1], file=open("passed.port", "w"), flush=True)
	for number, passed in enumerate([os.dup(unix.fileno()), os.dup(tcp.fileno())]):
	    os.dup2(os.dup(passed), 20 + number)
	for number in range(2):
	    os.dup2(20 + number, 3 + number, inheritable=True)
	os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS="2", LISTEN_FDNAMES="perf-exporter.socket:admin")
	os.execv(sys.argv[1], [sys.argv[1], "run", "--config", "sockets.yaml"])
	END
python3 activate.py "$exporter" >passed.log 2>&1 &
pids+=($!)
expect "it serves on the sockets that it was given" within 60 gives 200 --unix-socket passed.sock http://localhost/metrics
expect "one with the name admin is for administrators" gives 200 "http://$network:$(cat passed.port)/status"
expect "it binds no others" eval '[ "$(grep -c "serving on" passed.log)" = 2 ] && ! [ -e http.sock ]'
finish exporter prometheus
