package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"path"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// code-server's cookie of those who gave its password; others have a suffix.
	session = "code-server-session"
	// A workspace is reached, and takes a password, within so long.
	dialPatience, loginPatience = 5 * time.Second, 20 * time.Second
	// Seconds after which a browser asks again for a workspace that is only starting.
	again = 3
	// After a login that was refused, none is tried for so long: code-server counts them.
	quiet = 30 * time.Second
	// A workspace is its attendee's: it may answer with whatever it likes.
	answerPatience = 2 * time.Minute
	largestAnswer  = 64 << 10
)

// Go gives away the connection of such an answer, though nobody asked for it, and no patience ends a read of it.
var errSwitched = errors.New("the workspace answers in another protocol")

var transport = &http.Transport{
	DialContext:         (&net.Dialer{Timeout: dialPatience}).DialContext,
	MaxIdleConnsPerHost: 32,
	IdleConnTimeout:     idle,
	// In bytes: the head of an answer.
	MaxResponseHeaderBytes: largestAnswer,
	ResponseHeaderTimeout:  answerPatience,
	// What is compressed stays so.
	DisableCompression: true,
}

// Leads to the places' workspaces, by an address and a password each.
type ways struct{ known sync.Map }

func (w *ways) to(chosen *place) *way {
	key := chosen.URL + " " + chosen.Password
	if known, ok := w.known.Load(key); ok {
		return known.(*way)
	}
	known, _ := w.known.LoadOrStore(key, newWay(chosen))
	return known.(*way)
}

// Leads to one workspace, and has its session: the browser never gets one.
type way struct {
	place *place
	proxy *httputil.ReverseProxy
	// How many WebSockets of its attendee's browsers are open.
	open atomic.Int64
	// For the session. Who waits for the lock may give up.
	lock    chan struct{}
	cookie  string
	refused time.Time
}

type cookieOfPlace struct{}

func newWay(chosen *place) *way {
	made := &way{place: chosen, lock: make(chan struct{}, 1)}
	made.proxy = &httputil.ReverseProxy{
		Transport:      transport,
		Rewrite:        made.rewrite,
		ModifyResponse: made.modify,
		ErrorHandler:   made.fail,
		ErrorLog:       log.New(&discarded{}, "", 0),
		// What is printed in a terminal is shown at once.
		FlushInterval: -1,
	}
	return made
}

func (w *way) ServeHTTP(out http.ResponseWriter, r *http.Request) {
	cookie, err := w.session(r.Context())
	if err != nil {
		w.fail(out, r, err)
		return
	}
	if r.Header.Get("Upgrade") != "" {
		w.open.Add(1)
		defer w.open.Add(-1)
	}
	w.proxy.ServeHTTP(out, r.WithContext(context.WithValue(r.Context(), cookieOfPlace{}, cookie)))
}

func (w *way) rewrite(r *httputil.ProxyRequest) {
	r.SetURL(w.place.target)
	// The workspace compares it with the page's origin.
	r.Out.Host = r.In.Host
	// VS Code takes its own address and port from such heads, of which Go leaves out the usual ones alone.
	for name := range r.Out.Header {
		if strings.HasPrefix(name, "X-Forwarded-") || strings.HasPrefix(name, "X-Original-") {
			r.Out.Header.Del(name)
		}
	}
	r.SetXForwarded()
	// Also where a proxy has ended it before the door, a browser speaks TLS.
	r.Out.Header.Set("X-Forwarded-Proto", "https")
	kept := []string{r.In.Context().Value(cookieOfPlace{}).(string)}
	// They are passed on as they are: Go would leave out what it takes for no cookie.
	for _, header := range r.In.Header.Values("Cookie") {
		for _, cookie := range strings.Split(header, ";") {
			if cookie = strings.TrimSpace(cookie); cookie != "" && !isOurs(nameOf(cookie)) {
				kept = append(kept, cookie)
			}
		}
	}
	r.Out.Header.Set("Cookie", strings.Join(kept, "; "))
}

func nameOf(cookie string) string {
	name, _, _ := strings.Cut(cookie, "=")
	return strings.TrimSpace(name)
}

func isOurs(cookie string) bool {
	return cookie == browserCookie || cookie == roomCookie || strings.HasPrefix(cookie, session)
}

func (w *way) modify(answer *http.Response) error {
	// A service worker of a place would see the links of others that this browser opens.
	answer.Header.Del("Service-Worker-Allowed")
	cookies := answer.Header.Values("Set-Cookie")
	answer.Header.Del("Set-Cookie")
	for _, cookie := range cookies {
		// A place may set what it likes for itself, but nothing of the door's.
		if !isOurs(nameOf(cookie)) {
			answer.Header.Add("Set-Cookie", cookie)
		}
	}
	// What a program in the place serves, code-server leads to below these.
	asked := strings.TrimPrefix(answer.Request.URL.Path, w.place.target.Path)
	if strings.HasPrefix(asked, "/proxy/") || strings.HasPrefix(asked, "/absproxy/") {
		return nil
	}
	isLogin := leadsToLogin(answer)
	if isLogin || answer.StatusCode == http.StatusUnauthorized {
		w.forget(answer.Request)
	}
	if isLogin && answer.Request.Method == http.MethodGet {
		// The browser asks for the same again, with a new session.
		// With two slashes it would lead to another host.
		answer.Header.Set("Location", "/"+strings.TrimLeft(answer.Request.URL.RequestURI(), "/"))
	}
	return nil
}

// Returns whether an answer leads to code-server's page for its password. The query may say "login" as well: the
// folder that was open last is in it.
func leadsToLogin(answer *http.Response) bool {
	location, err := answer.Location()
	return err == nil && answer.StatusCode == http.StatusFound && path.Base(location.Path) == "login"
}

func (w *way) fail(out http.ResponseWriter, r *http.Request, err error) {
	if errors.Is(err, context.Canceled) {
		return
	}
	if strings.Contains(r.Header.Get("Accept"), "text/html") {
		page{
			Title:   "Your place is starting",
			Heading: "Your place is starting",
			Text:    "Your workspace does not answer yet. This page looks again by itself.",
			Again:   again,
		}.write(out, http.StatusServiceUnavailable)
		return
	}
	http.Error(out, "The workspace does not answer.", http.StatusServiceUnavailable)
}

// Returns the cookie of a session at the workspace, as in name=value.
func (w *way) session(ctx context.Context) (string, error) {
	select {
	case w.lock <- struct{}{}:
		defer func() { <-w.lock }()
	case <-ctx.Done():
		return "", ctx.Err()
	}
	if w.cookie != "" {
		return w.cookie, nil
	}
	if time.Since(w.refused) < quiet {
		return "", errors.New("the workspace refused its password a moment ago")
	}
	ctx, cancel := context.WithTimeout(ctx, loginPatience)
	defer cancel()
	form := strings.NewReader(url.Values{"password": {w.place.Password}}.Encode())
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, w.place.target.JoinPath("login").String(), form)
	if err != nil {
		return "", err
	}
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	answer, err := transport.RoundTrip(request)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	if answer.StatusCode == http.StatusSwitchingProtocols {
		return "", errSwitched
	}
	io.Copy(io.Discard, io.LimitReader(answer.Body, largestHead))
	for _, cookie := range answer.Cookies() {
		if strings.HasPrefix(cookie.Name, session) && cookie.Value != "" {
			w.cookie = cookie.Name + "=" + cookie.Value
			return w.cookie, nil
		}
	}
	// A workspace that is only starting answers with an error of its own.
	if answer.StatusCode < http.StatusInternalServerError {
		w.refused = time.Now()
		log.Printf("the workspace of %s refuses its password: %s", w.place.Name, answer.Status)
	}
	return "", fmt.Errorf("no session: %s", answer.Status)
}

// Asks the workspace for one of its files. Returns nil where there is none; whoever has the answer closes its body.
func (w *way) file(ctx context.Context, name string) (*http.Response, error) {
	cookie, err := w.session(ctx)
	if err != nil {
		return nil, err
	}
	// It serves the files of the workspace to VS Code's own pages.
	address := w.place.target.JoinPath("vscode-remote-resource")
	address.RawQuery = url.Values{"path": {name}}.Encode()
	ctx = context.WithValue(ctx, cookieOfPlace{}, cookie)
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address.String(), nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Cookie", cookie)
	answer, err := transport.RoundTrip(request)
	if err != nil {
		return nil, err
	}
	if answer.StatusCode == http.StatusOK {
		return answer, nil
	}
	defer answer.Body.Close()
	if answer.StatusCode == http.StatusSwitchingProtocols {
		return nil, errSwitched
	}
	// Else the connection could not be used again.
	io.Copy(io.Discard, io.LimitReader(answer.Body, largestAnswer))
	if answer.StatusCode == http.StatusNotFound {
		return nil, nil
	}
	w.forget(request)
	return nil, errors.New("the workspace answers " + answer.Status)
}

// Forgets the session that a request had, for it is one no more.
func (w *way) forget(request *http.Request) {
	used, _ := request.Context().Value(cookieOfPlace{}).(string)
	select {
	case w.lock <- struct{}{}:
		defer func() { <-w.lock }()
	case <-request.Context().Done():
		return
	}
	if w.cookie == used {
		w.cookie = ""
	}
}
