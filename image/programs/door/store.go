package main

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"
)

const (
	// Where Kubernetes puts what a pod needs for its API.
	account = "/var/run/secrets/kubernetes.io/serviceaccount"
	// The API answers within so long, and with so much: a Secret holds 1 MiB, in Base64 here.
	apiPatience   = 5 * time.Second
	largestSecret = 2 << 20
	// A certificate of our own lasts as long as browsers take one for.
	validity = 397 * 24 * time.Hour
	// The keys of the two Secrets.
	listKey, claimsKey, chainKey, keyKey, cookieKey = "places.json", "claims.json", "tls.crt", "tls.key", "cookie.key"
	// A certificate that ends within so long is made anew.
	lastDays = 7 * 24 * time.Hour
)

var errChanged = errors.New("somebody else has changed it meanwhile")

// Asks Kubernetes' API, as the account of the pod.
type client struct {
	account string
	http    *http.Client
}

// A Secret, which is there already.
type store struct {
	client *client
	url    *url.URL
}

type secret struct {
	version string
	data    map[string][]byte
}

func newClient(account string) (*client, error) {
	transport := &http.Transport{MaxIdleConnsPerHost: 4, TLSHandshakeTimeout: apiPatience}
	authority, err := os.ReadFile(filepath.Join(account, "ca.crt"))
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(authority) {
		return nil, errors.New("the API's authority is no certificate")
	}
	transport.TLSClientConfig = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	return &client{account, &http.Client{Transport: transport, Timeout: apiPatience}}, nil
}

// The address has to be one of TLS: the account's token goes there.
func (c *client) secretAt(address string) (*store, error) {
	parsed, err := url.Parse(address)
	if err != nil || parsed.Scheme != "https" || parsed.Host == "" {
		return nil, errors.New("is not the https address of a Secret")
	}
	return &store{c, parsed}, nil
}

func (s *store) read(ctx context.Context) (secret, error) {
	return s.ask(ctx, http.MethodGet, "", nil)
}

// Replaces these keys of the Secret, where it is still of that version. Returns errChanged where it is not.
func (s *store) write(ctx context.Context, version string, data map[string][]byte) (secret, error) {
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"resourceVersion": version},
		"data":     data,
	})
	if err != nil {
		return secret{}, err
	}
	return s.ask(ctx, http.MethodPatch, "application/merge-patch+json", patch)
}

func (s *store) ask(ctx context.Context, method, kind string, body []byte) (secret, error) {
	request, err := http.NewRequestWithContext(ctx, method, s.url.String(), bytes.NewReader(body))
	if err != nil {
		return secret{}, err
	}
	// It is read each time: Kubernetes renews it.
	token, err := os.ReadFile(filepath.Join(s.client.account, "token"))
	if err != nil {
		return secret{}, err
	}
	request.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	request.Header.Set("Accept", "application/json")
	if kind != "" {
		request.Header.Set("Content-Type", kind)
	}
	answer, err := s.client.http.Do(request)
	if err != nil {
		return secret{}, err
	}
	defer answer.Body.Close()
	content, err := io.ReadAll(io.LimitReader(answer.Body, largestSecret))
	if err != nil {
		return secret{}, err
	}
	if answer.StatusCode == http.StatusConflict {
		return secret{}, errChanged
	}
	if answer.StatusCode != http.StatusOK {
		return secret{}, fmt.Errorf("the API answers %s", answer.Status)
	}
	var document struct {
		Metadata struct {
			ResourceVersion string `json:"resourceVersion"`
		} `json:"metadata"`
		Data map[string][]byte `json:"data"`
	}
	if err := json.Unmarshal(content, &document); err != nil {
		return secret{}, fmt.Errorf("the API's answer is no Secret: %w", err)
	}
	return secret{document.Metadata.ResourceVersion, document.Data}, nil
}

// Returns the certificate and the key that are kept, in PEM; makes them where there are none.
func (s *store) certificate(ctx context.Context) (chain, key []byte, err error) {
	there, err := s.read(ctx)
	if err != nil {
		return nil, nil, err
	}
	now := time.Now()
	if chain, key = there.data[chainKey], there.data[keyKey]; lasts(chain, now) && len(key) > 0 {
		return chain, key, nil
	}
	if chain, key, err = selfSigned(now); err != nil {
		return nil, nil, err
	}
	_, err = s.write(ctx, there.version, map[string][]byte{chainKey: chain, keyKey: key})
	if errors.Is(err, errChanged) {
		return s.certificate(ctx)
	}
	return chain, key, err
}

func lasts(chain []byte, now time.Time) bool {
	block, _ := pem.Decode(chain)
	if block == nil {
		return false
	}
	parsed, err := x509.ParseCertificate(block.Bytes)
	return err == nil && parsed.NotAfter.After(now.Add(lastDays))
}

// Returns the key by which cookies are made; makes it where there is none.
func (s *store) cookieKey(ctx context.Context) ([]byte, error) {
	there, err := s.read(ctx)
	if err != nil {
		return nil, err
	}
	if key := there.data[cookieKey]; len(key) > 0 {
		return key, nil
	}
	key := make([]byte, 32)
	rand.Read(key)
	_, err = s.write(ctx, there.version, map[string][]byte{cookieKey: key})
	if errors.Is(err, errChanged) {
		return s.cookieKey(ctx)
	}
	return key, err
}

// Returns a certificate that nobody has signed but itself: `workshop` shows its fingerprint.
func selfSigned(now time.Time) (chain, key []byte, err error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, nil, err
	}
	template := x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: "Rayside workshop"},
		DNSNames:     []string{"rayside.invalid"},
		// An attendee's clock may be behind.
		NotBefore:             now.Add(-24 * time.Hour),
		NotAfter:              now.Add(validity - 24*time.Hour),
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true,
	}
	encoded, err := x509.CreateCertificate(rand.Reader, &template, &template, private.Public(), private)
	if err != nil {
		return nil, nil, err
	}
	encodedKey, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return nil, nil, err
	}
	chain = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: encoded})
	return chain, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: encodedKey}), nil
}
